"""Unique names for new values and nodes; every pass gets its names here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.ir.bodies import all_nodes, bodies

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model


class FreshNames:
    """Generates names that are unused by values, initializers, inputs and nodes of the main graph and all bodies.

    A body must not shadow outer names, so names are unique in the whole model, not per graph. (onnx-ir's name authority
    is per graph and ignores outer scopes and bodies.) As an analysis, `ctx.analysis(FreshNames, model)`, one generator
    serves all passes until the model changes; a name is never returned twice.

    Args:
        taken: The names in use.
    """

    def __init__(self, taken: Iterable[str | None] = ()):
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    @classmethod
    def of(cls, graph: ir.Graph) -> FreshNames:
        """Return the generator for a main graph and all of its bodies, built in one walk."""
        nodes = list(all_nodes(graph))
        taken: set[str | None] = {node.name for node in nodes}
        taken.update([value.name for node in nodes for value in node.outputs])
        for held in (graph, *(body for node in nodes for body in bodies(node))):
            taken.update([value.name for value in held.inputs])
            taken.update(held.initializers)
        return cls(taken)

    @classmethod
    def compute(cls, model: Model, _: object) -> FreshNames:
        """Return the generator for the current revision of `model`."""
        return model.names or cls.of(model.graph)

    def reserve(self, name: str) -> None:
        """Never return `name`, which somebody uses."""
        self._taken.add(name)

    def fresh(self, wanted: str) -> str:
        """Return `wanted` if it is free, else `wanted_1`, `wanted_2`, ...; the name is reserved."""
        name, number = wanted, self._numbers.get(wanted, 0)
        while name in self._taken:
            # Continuing from the last number keeps many names of one stem linear.
            number += 1
            name = f"{wanted}_{number}"
        self._numbers[wanted] = number
        self._taken.add(name)
        return name
