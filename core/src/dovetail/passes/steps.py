"""Steps of pipelines: passes, fixpoints of passes, and passes nested on the regions of a backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dovetail.api_extensions import api_extension
from dovetail.errors import DovetailError, UsageError
from dovetail.passes.base import Pass
from dovetail.planning.placement import HOST, placed_backends
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.context import Context
    from dovetail.plugin.services import Regions


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
    """Passes that run on every region of a backend separately, each region as a model of its own.

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


def check_anchors(steps: Iterable[Step], model: Model, ctx: Context) -> None:
    """Reject nested pipelines anchored on backends that are neither chosen nor in the model's placements.

    Raises:
        UsageError: There is such a pipeline.
    """
    anchors = {nested.backend for nested in nested_in(steps)}
    chosen = [choice.name for choice in ctx.request.backends]
    if anchors <= {*chosen, HOST}:
        return
    known = dict.fromkeys([*chosen, HOST, *sorted(placed_backends(model))])
    for name in sorted(anchors - known.keys()):
        raise UsageError(
            f"backend:{name}(...): no backend {name!r} is chosen{did_you_mean(name, known)}",
            f"chosen: {', '.join(known)}; add --backend {name}",
        )


def regions_under(nested: Nested, model: Model) -> Regions:
    """Return the regions of the backend that anchors a nested pipeline.

    Raises:
        DovetailError: The model is not placed, or no distribution that extracts regions is installed.
    """
    if not placed_backends(model):
        raise DovetailError(
            f"{nested}: the model has no placements", "run `place` before it, or give a model that was compiled"
        )
    found: Regions = api_extension("regions")(model, nested.backend)
    return found
