"""What one compilation refines: the steps of its backends, what it changed, and what of that a replay needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.refining.saved import Saved, SavedWriter
from dovetail_quantize.refining.steps import RECORD, steps_of

if TYPE_CHECKING:
    from dovetail.passes import Context


_KEPT, _FILES = "refined", "files"


class Record:
    """The refinements of one compilation.

    Args:
        ctx: Its run.

    Attributes:
        steps: The refinements of every backend.
        replayed: Whether what data changed comes from a replayed plan, instead of data.
    """

    def __init__(self, ctx: Context):
        self.steps: Mapping[str, tuple[str, ...]] = steps_of(ctx)
        plan = ctx.request.plan
        summary = getattr(plan, "summary", None) or {}
        self.replayed = bool(getattr(plan, "values", None)) and RECORD in summary
        self._counts: Counter[str] = Counter()
        self._writer: SavedWriter | None = None
        self._saved: Saved | None = None
        recorded = summary[RECORD] if self.replayed else {}
        if recorded.get("file"):
            name = str(recorded["file"])
            digest = (summary.get(_FILES) or {}).get(name, "")
            self._saved = Saved(plan.files.get(name), digest, name)

    @classmethod
    def of(cls, ctx: Context) -> Record:
        """The record of the plan that is being carried out, made when it is first asked for."""
        known = ctx.kept.get(_KEPT)
        if known is None or known[0] is not ctx.outcome.plan or known[1] is not ctx.outcome.decided:
            known = ctx.kept[_KEPT] = (ctx.outcome.plan, ctx.outcome.decided, cls(ctx))
        return known[2]

    def count(self, step: str, number: int = 1) -> None:
        """Count what a refinement changed."""
        self._counts[step] += number

    def save(self, step: str, name: str, array: np.ndarray) -> np.ndarray:
        """Keep what a refinement found on data, and return it mapped from disk; see `SavedWriter.add`."""
        self._writer = self._writer or SavedWriter()
        return self._writer.add(step, name, array)

    def saved(self, step: str, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """What the replayed plan has of a refinement; None if it changed nothing there."""
        return None if self._saved is None else self._saved.get(step, name, shape)

    def finish(self, ctx: Context) -> None:
        """Write down in the plan what was refined, and hand it the file that a replay needs."""
        plan = ctx.outcome.plan
        if plan is None:
            return
        entry: dict[str, object] = {"steps": {name: list(steps) for name, steps in self.steps.items()}}
        entry["changed"] = {step: number for step, number in sorted(self._counts.items()) if number}
        written = self._writer.finish() if self._writer is not None else None
        if written is not None:
            files, digest = written
            (name,) = files
            entry["file"] = name
            plan.files = files
            plan.summary[_FILES] = {name: digest}
        plan.summary[RECORD] = entry
