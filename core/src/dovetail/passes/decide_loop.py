"""The decide loop: stages from `place` on are run again until no pass refuses a decision any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes.steps import passes_in
from dovetail.planning.refusals import Refused
from dovetail.planning.remark import Remark

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.context import Context, Mark
    from dovetail.passes.steps import Step


_FIRST_STAGE = "place"
_PATIENCE = 16
"""Rounds after which a backend that still refuses something is left out. Usual models take four at most."""


class DecideLoop:
    """Where a run of a pipeline goes on after each step: with the next one, or with the first that decides.

    Args:
        steps: The steps of the pipeline.
        model: The model of the run.
        ctx: Its context.
    """

    def __init__(self, steps: Sequence[Step], model: Model, ctx: Context):
        stages = [[pass_.stage for pass_ in passes_in([step])] for step in steps]
        self._start = next((at for at, found in enumerate(stages) if _FIRST_STAGE in found), None)
        self._model, self._ctx = model, ctx
        self._revision = -1
        self._before: Mark | None = None

    def enter(self, position: int) -> None:
        """Note the state before the step at `position`, if that is where a round begins."""
        if position != self._start:
            return
        self._revision = self._model.revision
        self._before = self._before or self._ctx.mark()
        self._ctx.refusals.fresh = False

    def next(self, position: int) -> int | None:
        """The step after the one at `position`; None if this pipeline cannot decide again what was refused.

        That is the case if the graph was changed since the round began, or if the pipeline decides nothing. Whoever
        runs it then starts again with the graph as it was.
        """
        refusals = self._ctx.refusals
        if not refusals.fresh:
            return position + 1
        if self._start is None or self._before is None or position < self._start:
            return None
        if self._model.revision != self._revision:
            if self._ctx.unedited is None:
                return None
            self._model.replace(self._ctx.unedited)
            self._ctx.unedited = None
        refusals.rounds += 1
        if refusals.rounds >= _PATIENCE:
            self._give_up()
        self._ctx.begin_round(self._before)
        return self._start

    def _give_up(self) -> None:
        refusals = self._ctx.refusals
        wanted = [name for name in refusals.backends() if refusals.given_up(name) is None]
        if not wanted:
            raise DovetailError(
                f"no end of deciding: something is refused in each of {refusals.rounds} rounds",
                "report it with the model and the backend files",
            )
        for name in wanted:
            why = f"it was left out: it refused nodes in {refusals.rounds} rounds without an end"
            remark = Remark("failed", "", "decide", "given-up", f"{name}: {why}")
            refusals.give_up(name, Refused(why, (remark,)))
