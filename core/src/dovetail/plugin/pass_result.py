"""Results of a pipeline run: changes, times, counts and remarks per pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.planning.remark import Remark


@dataclass
class PassResult:
    """The result of one step.

    Attributes:
        name: Name of the pass, or `fixpoint`.
        changed: Whether it changed the model.
        seconds: Its time in seconds, including children, excluding the verifier.
        verify_seconds: Time of the verifier after it, in seconds.
        counts: Its statistics.
        remarks: Its remarks.
        children: The results of a fixpoint's passes, in execution order.
    """

    name: str
    changed: bool = False
    seconds: float = 0.0
    verify_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    remarks: list[Remark] = field(default_factory=list)
    children: list[PassResult] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, children: list[PassResult]) -> PassResult:
        """Combine the results of nested steps."""
        changed, seconds = any(child.changed for child in children), sum(child.seconds for child in children)
        return cls(name, changed, seconds, children=children)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "name": self.name,
            "changed": self.changed,
            "seconds": round(self.seconds, 6),
            "verify_seconds": round(self.verify_seconds, 6),
            "counts": dict(sorted(self.counts.items())),
            "children": [child.as_dict() for child in self.children],
        }


@dataclass
class Result:
    """The result of a pipeline.

    Attributes:
        model: The model, changed in place.
        passes: The result of every step, in order.
        remarks: All remarks of the run.
        stopped_after: The pass after which the run stopped on request, or empty.
        refused: Whether the run stopped because a pass rejected a decision.
    """

    model: Model
    passes: list[PassResult] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    stopped_after: str = ""
    refused: bool = False

    @property
    def changed(self) -> bool:
        """Whether any step changed the model."""
        return any(step.changed for step in self.passes)

    @property
    def statistics(self) -> dict[str, dict[str, int]]:
        """Return counts by pass, summed over all its runs, in the order of first runs."""
        sums: dict[str, Counter[str]] = {}
        for _, step in self.steps():
            if step.counts:
                sums.setdefault(step.name, Counter()).update(step.counts)
        return {name: dict(sorted(counts.items())) for name, counts in sums.items()}

    def steps(self) -> Iterator[tuple[int, PassResult]]:
        """Yield the result of every step with its depth, those in fixpoints after them."""
        return _walk(self.passes)


def _walk(steps: list[PassResult], depth: int = 0) -> Iterator[tuple[int, PassResult]]:
    for step in steps:
        yield depth, step
        yield from _walk(step.children, depth + 1)
