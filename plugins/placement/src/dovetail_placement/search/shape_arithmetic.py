"""Shape arithmetic: nodes that compute with extents and positions alone, in whatever type."""

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
"""Floats of a constant that counts as one of the computation: extents have a few axes, a table has more."""


class ShapeArithmetic:
    """The nodes that compute extents and positions from others: `view.analysis(ShapeArithmetic)`. One walk.

    A node belongs to it if it reads no number of the model, and computes something from extents, or computes extents or
    indices. So the floats of a size that is multiplied by a scale, and constants of a computed size, belong to it;
    Shape and ArgMax of an activation do not: they read numbers. Numbers of the model are what was learned, too: a
    constant of more than a few floats (a class token that is expanded, a table of positions), and what a product
    computes.

    Attributes:
        nodes: These nodes.
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
    """Whether a constant holds more floats than a computation with extents needs: eight scales of a Resize, say."""
    return carries_numbers(value) and (value.shape is None or math.prod(value.shape.numpy()) > _MOST)
