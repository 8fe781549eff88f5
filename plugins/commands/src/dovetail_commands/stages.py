"""What each part of a compilation decided, one line each, as soon as the part is through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dovetail.planning import Placement, coverage_line, get_placement, walk
from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Pass, PassResult, Result
    from dovetail.plugin import Registry

_PARTS = {
    "normalize": "prepare", "analyze": "prepare", "place": "decide", "type": "decide", "emit": "load", "load": "load",
}  # fmt: skip
"""The part of a compilation that a stage belongs to; all others carry out what was decided."""
_NAMED = 3  # operators that were folded


class StageReport:
    """Tells what a compilation does, from the hooks of its pipelines: a line for each part when it is through.

    The first pipeline has a line for each part, later rounds, which follow from refusals and goals, one for what they
    decide.

    Args:
        say: Called with each line.
        registry: The installed passes, whose stages say when a part begins.
        seconds: Whether to add the time of each part.
    """

    def __init__(self, say: Callable[[str], None], registry: Registry, seconds: bool = False):
        self._say, self._passes, self._seconds = say, registry.pass_, seconds
        self._rounds = 0
        self._part = ""
        self._model: Model | None = None
        self._before: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = {}
        self._time = 0.0

    def begins(self, name: str) -> None:
        """Take note of the next step: if it belongs to another part, the part before is through."""
        stage = self._passes[name].stage if name in self._passes else None
        part = _PARTS.get(stage, "carry out") if stage else self._part
        if part != self._part:
            self._finish()
            self._part = part

    def passed(self, pass_: Pass, model: Model, result: PassResult) -> None:
        """Take note of what a pass did."""
        if not self._rounds and not self._before:
            self._before = Counter(node.op_type for _, node in walk(model))
        self._model, self._counts[pass_.name] = model, result.counts
        self._time += result.seconds + result.verify_seconds

    def finished(self, _: Result) -> None:
        """Take note of the end of a pipeline."""
        self._finish()
        self._rounds += 1
        self._part = ""

    def _finish(self) -> None:
        """Say what the part decided that is through."""
        model, part, took = self._model, self._part, self._time
        self._time = 0.0
        if model is None or part in ("", "load") or (self._rounds and part != "decide"):
            return
        facts = {"prepare": self._prepared, "decide": self._decided, "carry out": self._carried_out}[part](model)
        title = f"round {self._rounds + 1}" if self._rounds else part
        self._say(f"{title:<10}{f'{took:8.2f} s  ' if self._seconds else ''}{'; '.join(facts)}")

    def _prepared(self, model: Model) -> Iterator[str]:
        now = Counter(node.op_type for _, node in walk(model))
        yield pluralize(now.total(), "node")
        gone = self._before - now
        if gone:
            named = ", ".join(f"{name} {number}" for name, number in gone.most_common(_NAMED))
            yield f"{gone.total()} folded or removed ({named}{', ...' if len(gone) > _NAMED else ''})"

    def _decided(self, model: Model) -> Iterator[str]:
        yield coverage_line([get_placement(node) or Placement() for _, node in walk(model)], precisions=True)

    def _carried_out(self, _: Model) -> Iterator[str]:
        counts = self._counts
        quantized = counts.get("calibrate", Counter())["quantized values"]
        if quantized:
            yield f"{pluralize(quantized, 'value')} quantized"
        yield pluralize(counts.get("form-regions", Counter())["regions"], "region")
