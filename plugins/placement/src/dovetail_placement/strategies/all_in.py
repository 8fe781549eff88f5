"""The `all-in` strategy: whatever the backend takes in integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_placement.strategies.integers import IntegerStrategy

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.strategies.integers import Candidates
    from dovetail_placement.strategies.obstacles import Reasons


class AllIn(IntegerStrategy):
    """Claims every node that the backend takes in integers, wherever it is."""

    follow = False

    def select(self, candidates: Candidates) -> set[ir.Node]:
        """All nodes."""
        return set(candidates.graph.nodes)

    def why_not(self, candidates: Candidates) -> Reasons:
        """Nothing is left over."""
        return lambda node: (f"the strategy leaves out '{node.name}'", ())
