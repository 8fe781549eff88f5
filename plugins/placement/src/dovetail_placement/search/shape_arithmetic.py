"""Shape arithmetic: nodes that compute with extents and positions alone, in whatever type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_placement.edge_kinds import EdgeKinds
from dovetail_placement.search.edges import SearchGraph
from dovetail_placement.search.sockets import carries_numbers

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["ShapeArithmetic"]


class ShapeArithmetic:
    """The nodes that compute extents and positions from others: `view.analysis(ShapeArithmetic)`. One walk.

    A node belongs to it if it reads no number of the model, and computes something from extents, or computes extents or
    indices. So the floats of a size that is multiplied by a scale, and constants of a computed size, belong to it;
    Shape and ArgMax of an activation do not: they read numbers.

    Attributes:
        nodes: These nodes.
    """

    def __init__(self, graph: SearchGraph, kinds: EdgeKinds):
        self.nodes: set[ir.Node] = set()
        for node in graph.nodes:
            computed = {edge.value: edge.source for edge in graph.producers[node]}
            from_extents = False
            for value in node.inputs:
                if value is None or value.is_initializer():
                    continue
                source = computed.get(value)
                if source in self.nodes or source is not None and kinds.of_value(value) == "shape":
                    from_extents = True
                elif carries_numbers(value):
                    break
            else:
                if from_extents or kinds.of_node(node) != "data":
                    self.nodes.add(node)

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> ShapeArithmetic:
        """Walk the current revision of `model`."""
        return cls(ctx.analysis(SearchGraph, model), ctx.analysis(EdgeKinds, model))
