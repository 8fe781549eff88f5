"""Names for new values and nodes: the one place where passes get them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.ir.bodies import all_nodes, bodies

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model

__all__ = ["FreshNames"]


class FreshNames:
    """Names that nothing in a model has: no value, initializer, input or node of the main graph or of any body.

    A body sees the names outside and must not define them again, so names are unique in the whole model, not per graph.
    (onnx-ir's own name authority belongs to one graph, sees neither outer scopes nor bodies, and names only what has no
    name.) As an analysis, `ctx.analysis(FreshNames, model)`, one generator serves all passes until the model changes;
    every name is handed out once, whether or not it is used.

    Args:
        taken: The names that are in use.
    """

    def __init__(self, taken: Iterable[str | None] = ()):
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    @classmethod
    def of(cls, graph: ir.Graph) -> FreshNames:
        """The generator for a main graph and all of its bodies; one walk over both."""
        nodes = list(all_nodes(graph))
        taken: set[str | None] = {node.name for node in nodes}
        taken.update([value.name for node in nodes for value in node.outputs])
        for held in (graph, *(body for node in nodes for body in bodies(node))):
            taken.update([value.name for value in held.inputs])
            taken.update(held.initializers)
        return cls(taken)

    @classmethod
    def compute(cls, model: Model, _: object) -> FreshNames:
        """The generator for `model` as it is now, as an analysis."""
        return cls.of(model.graph)

    def fresh(self, wanted: str) -> str:
        """`wanted` if it is free, else `wanted_1`, `wanted_2`, ...; the name counts as taken from now on."""
        name, number = wanted, self._numbers.get(wanted, 0)
        while name in self._taken:
            # Numbers that were given away are not tried again, so many names of one stem cost no more than others.
            number += 1
            name = f"{wanted}_{number}"
        self._numbers[wanted] = number
        self._taken.add(name)
        return name
