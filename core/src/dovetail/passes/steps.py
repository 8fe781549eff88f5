"""Steps of pipelines: passes, and fixpoints of passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dovetail.passes.base import Pass

__all__ = ["Fixpoint", "names_in", "passes_in"]

_DEFAULT_LIMIT = 10


@dataclass(frozen=True)
class Fixpoint:
    """Passes that are repeated until none changes the model.

    Attributes:
        steps: The passes; may contain fixpoints.
        limit: The maximum number of rounds; a remark reports if the model still changed in the last one.
    """

    steps: tuple[Pass | Fixpoint, ...]
    limit: int = _DEFAULT_LIMIT

    def __str__(self) -> str:
        options = "" if self.limit == _DEFAULT_LIMIT else f"{{limit={self.limit}}}"
        return f"fixpoint{options}({','.join(map(str, self.steps))})"


def passes_in(steps: Iterable[Pass | Fixpoint]) -> Iterator[Pass]:
    """Yield every pass in `steps` in order, including those in fixpoints."""
    stack = list(steps)[::-1]
    while stack:
        step = stack.pop()
        if isinstance(step, Fixpoint):
            stack.extend(reversed(step.steps))
        else:
            yield step


def names_in(steps: Iterable[Pass | Fixpoint]) -> list[str]:
    """Return the names of all passes in `steps`."""
    return [pass_.name for pass_ in passes_in(steps)]
