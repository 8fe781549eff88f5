"""The `conservative` strategy: from every product on, as long as all operators are in integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_placement.search import DOWN, match
from dovetail_placement.strategies.integers import IntegerStrategy
from dovetail_placement.strategies.obstacles import obstacles

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.strategies.integers import Candidates
    from dovetail_placement.strategies.obstacles import Reasons


class Conservative(IntegerStrategy):
    """Claims products, and what their numbers reach through operators in integers.

    The first operator that is not in integers ends this, and what is behind it stays away until the next product.
    """

    def select(self, candidates: Candidates) -> set[ir.Node]:
        """The products, and what they reach."""
        taken = candidates.taken
        return match(
            candidates.graph,
            start=candidates.is_product,
            relay=lambda edge: edge.carries and edge.target in taken,
            end=None,
        )

    def why_not(self, candidates: Candidates) -> Reasons:
        """What stands between a node and the products before it."""
        before = obstacles(candidates, DOWN)

        def reason(node: ir.Node) -> tuple[str, tuple[ir.Node, ...]]:
            obstacle = before.get(node)
            if obstacle is None:
                return f"no product ({candidates.products}) comes before it", ()
            return f"it is behind '{obstacle.name}' ({obstacle.op_type}), which is not in integers", (obstacle,)

        return reason
