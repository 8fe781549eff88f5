"""The `perseus` strategy: everything that is connected with a product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_placement.search import connected
from dovetail_placement.strategies.integers import IntegerStrategy

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.strategies.integers import Candidates
    from dovetail_placement.strategies.obstacles import Reasons


class Perseus(IntegerStrategy):
    """Claims products, and everything that values connect with them, in front of them and behind."""

    follow = False

    def select(self, candidates: Candidates) -> set[ir.Node]:
        """The products, and what is connected with them."""
        return connected(candidates.graph, start=candidates.is_product, relay=lambda edge: edge.carries)

    def why_not(self, candidates: Candidates) -> Reasons:
        """Whatever is left exchanges no numbers with a product."""
        products = candidates.products
        return lambda node: (f"no values connect it with a product ({products})", ())
