"""The `pointwise` strategy: products alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_placement.strategies.integers import IntegerStrategy

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.strategies.integers import Candidates
    from dovetail_placement.strategies.obstacles import Reasons


class Pointwise(IntegerStrategy):
    """Claims products; everything between them stays in floats."""

    follow = False

    def select(self, candidates: Candidates) -> set[ir.Node]:
        """The products."""
        return {node for node in candidates.graph.nodes if candidates.is_product(node)}

    def why_not(self, candidates: Candidates) -> Reasons:
        """Everything else is no product."""
        products = candidates.products
        return lambda node: (f"{node.op_type} is no product ({products})", ())
