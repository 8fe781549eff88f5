"""Steps of pipelines: passes, fixpoints of passes, and passes nested on the regions of a backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dovetail.errors import DovetailError, UsageError
from dovetail.plugin.pass_ import Pass
from dovetail.text import did_you_mean

_DEFAULT_LIMIT = 10


@dataclass(frozen=True)
class Fixpoint:
    """Passes repeated until none changes the model.

    Attributes:
        steps: The passes; may contain fixpoints.
        limit: The maximum number of rounds; a remark reports if the model still changed in the last one.
    """

    steps: tuple[Step, ...]
    limit: int = _DEFAULT_LIMIT

    def __str__(self) -> str:
        options = "" if self.limit == _DEFAULT_LIMIT else f"{{limit={self.limit}}}"
        return f"fixpoint{options}({','.join(map(str, self.steps))})"


@dataclass(frozen=True)
class Nested:
    """Passes that run on each region of a backend as a separate model.

    Attributes:
        backend: Name of the backend, the anchor of the nested pipeline.
        steps: The passes; may contain fixpoints, but no other nested pipeline.

    Raises:
        UsageError: It contains another nested pipeline: a region has nodes of one backend only.
    """

    backend: str
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if inner := next(nested_in(self.steps), None):
            raise UsageError(f"{inner} is inside of backend:{self.backend}(...)", "write one after the other")

    def __str__(self) -> str:
        return f"backend:{self.backend}({','.join(map(str, self.steps))})"


Step: TypeAlias = "Pass | Fixpoint | Nested"


def _walk(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield every step in order, including nested ones."""
    stack = list(steps)[::-1]
    while stack:
        step = stack.pop()
        yield step
        if isinstance(step, (Fixpoint, Nested)):
            stack.extend(reversed(step.steps))


def passes_in(steps: Iterable[Step]) -> Iterator[Pass]:
    """Yield every pass in `steps` in order, including those in fixpoints and nested pipelines."""
    return (step for step in _walk(steps) if not isinstance(step, (Fixpoint, Nested)))


def nested_in(steps: Iterable[Step]) -> Iterator[Nested]:
    """Yield every nested pipeline in `steps`, including those in fixpoints."""
    return (step for step in _walk(steps) if isinstance(step, Nested))


def names_in(steps: Iterable[Step]) -> list[str]:
    """Return the names of all passes in `steps`."""
    return [pass_.name for pass_ in passes_in(steps)]


class StepList:
    """The steps of a pipeline in order, which the hook `configure_pipeline` edits in place.

    Attributes:
        steps: The steps, which may be edited until the pipeline runs.
    """

    def __init__(self, steps: Iterable[Step] = ()):
        self.steps: list[Step] = list(steps)
        self._before: dict[int, Step] = {}  # by `id`, the step that another one was inserted before

    def passes(self) -> Iterator[Pass]:
        """Yield every pass in order, including those in fixpoints and nested pipelines."""
        return passes_in(self.steps)

    def index(self, name: str) -> int:
        """Return the position of the first step that is, or contains, the pass `name`.

        Raises:
            DovetailError: There is no such step.
        """
        for position, step in enumerate(self.steps):
            if name in names_in([step]):
                return position
        raise DovetailError(f"no pass {name!r} in this pipeline{did_you_mean(name, names_in(self.steps))}")

    def insert_before(self, name: str, step: Step) -> None:
        """Insert `step` before the first step that runs the pass `name`."""
        position = self.index(name)
        self._before[id(step)] = self.steps[position]
        self.steps.insert(position, step)

    def insert_after(self, name: str, step: Step) -> None:
        """Insert `step` after the first step that runs the pass `name`."""
        self.steps.insert(self.index(name) + 1, step)

    def __str__(self) -> str:
        return ",".join(map(str, self.steps))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepList) and self.steps == other.steps

    __hash__ = None  # type: ignore[assignment]  # Python marks unhashable classes this way

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)
