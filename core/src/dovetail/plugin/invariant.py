"""The contract of invariants: properties of every model after a stage, checked between stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from dovetail.errors import DovetailError
from dovetail.plugin import renamed
from dovetail.plugin.loading.contracts import made
from dovetail.plugin.pass_ import STAGES
from dovetail.plugin.renamed import now_called

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.plugin.context import Context
    from dovetail.plugin.loading.registry import Registry


class Invariant(ABC):
    """A property of every model once a stage is done: `registry.invariant("acme-packed", "acme.spec:Packed")`.

    It is checked after the last pass of the stage if `--verify-each` is on, but not in pipelines that a user wrote.
    Its class is instantiated without arguments.

    Attributes:
        stage: The stage.
        text: The property, as a clause: `every float port has a format`.
    """

    stage: ClassVar[str]
    text: ClassVar[str]

    @abstractmethod
    def violations(self, model: Model, ctx: Context) -> Iterator[str]:
        """Yield one clause per violation, which names the node. Must take linear time and not change the model."""


def invariants_of(registry: Registry, stage: str) -> list[Invariant]:
    """Return the registered invariants of a stage, by name; one that does not load is left out with a warning."""
    table = registry.invariant

    def load(name: str) -> Invariant:
        invariant = made(table[name], title := table.title(name), Invariant)
        if invariant.stage not in STAGES:
            near = now_called(invariant.stage, renamed.STAGES, STAGES)
            why = f"{title} names an unknown stage {invariant.stage!r}{near}"
            raise DovetailError(why, f"stages: {', '.join(STAGES)}")
        return invariant

    return [invariant for invariant in table.usable(load).values() if invariant.stage == stage]
