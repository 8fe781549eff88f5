"""The `aggressive` strategy: everything that numbers of a product reach, through other operators too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_placement.search import match
from dovetail_placement.strategies.integers import IntegerStrategy

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.strategies.integers import Candidates
    from dovetail_placement.strategies.obstacles import Reasons


class Aggressive(IntegerStrategy):
    """Claims products and everything that their numbers reach, whatever is between.

    Only NonMaxSuppression, Shape and TopK end this. An operator that is not in integers becomes an island of floats.
    """

    follow = False

    def select(self, candidates: Candidates) -> set[ir.Node]:
        """The products, and what they reach."""
        return match(
            candidates.graph,
            start=candidates.is_product,
            relay=lambda edge: edge.carries and not candidates.is_index_source(edge.target),
            end=None,
        )

    def why_not(self, candidates: Candidates) -> Reasons:
        """Whatever is left reads no number of a product."""
        products = candidates.products
        return lambda node: (f"it computes nothing from the result of a product ({products})", ())
