"""Detection of shape arithmetic: nodes that compute only with extents and positions, in any type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail_placement.edge_kinds import EdgeKinds, facts_of
from dovetail_placement.search.graph import SearchGraph, carries_numbers

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_schemas import OperatorFacts


_MOST = 16
"""Maximum floats of a constant that is part of the computation: extents have a few axes, a table has more."""


class ShapeArithmetic:
    """The nodes that compute extents and positions from others: `view.analysis(ShapeArithmetic)`. One walk.

    A node is shape arithmetic if it reads no data of the model, and computes from extents, or computes extents or
    indices. This includes the floats of a size multiplied by a scale, and constants of a computed size. It excludes
    Shape and ArgMax of an activation, which read data. Learned values are data, too: a constant of more than a few
    floats (an expanded class token, a table of positions), and the result of a product.

    Attributes:
        nodes: The shape arithmetic nodes.
    """

    def __init__(self, graph: SearchGraph, kinds: EdgeKinds, facts: OperatorFacts):
        self.nodes: set[ir.Node] = set()
        for node in graph.nodes:
            if facts.is_in("products", node.domain, node.op_type) and any(map(carries_numbers, node.outputs)):
                continue
            computed = {edge.value: edge.source for edge in graph.producers[node]}
            from_extents = False
            for value in node.inputs:
                if value is None:
                    continue
                if value.is_initializer():
                    if _is_learned(value):
                        break
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
        return cls(ctx.analysis(SearchGraph, model), ctx.analysis(EdgeKinds, model), facts_of(ctx.registry))


def _is_learned(value: ir.Value) -> bool:
    """Check whether a constant has more floats than shape arithmetic needs, such as the eight scales of a Resize."""
    return carries_numbers(value) and (value.shape is None or math.prod(value.shape.numpy()) > _MOST)
