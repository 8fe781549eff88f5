"""The `conv-to-conv` strategy: only what lies between two convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail_placement.search import DOWN, UP, match
from dovetail_placement.strategies.integers import IntegerStrategy
from dovetail_placement.strategies.obstacles import obstacles

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.search import Edge
    from dovetail_placement.strategies.integers import Candidates
    from dovetail_placement.strategies.obstacles import Reasons


@dataclass(frozen=True)
class ConvToConv(IntegerStrategy):
    """Claims the nodes on paths from one convolution to the next, if all operators between are in integers.

    So a region begins and ends with a convolution, or with the activation behind one.

    Attributes:
        ends: Operators that paths begin and end with.
    """

    ends: tuple[str, ...] = ("Conv",)

    def select(self, candidates: Candidates) -> set[ir.Node]:
        """The paths, with the convolutions at both ends."""
        ends = self._ends(candidates)
        return match(candidates.graph, start=ends, relay=_in_integers(candidates), end=ends, along=_carries)

    def why_not(self, candidates: Candidates) -> Reasons:
        """At which side no path leads to a convolution, and what stands between."""
        ends, names = self._ends(candidates), " or ".join(self.ends)
        behind = match(candidates.graph, start=ends, relay=_in_integers(candidates), end=None)
        before, after = obstacles(candidates, DOWN), obstacles(candidates, UP)

        def reason(node: ir.Node) -> tuple[str, tuple[ir.Node, ...]]:
            if node in ends:
                why, obstacle = f"joins it with another {names}", before.get(node) or after.get(node)
            elif node in behind:
                why, obstacle = f"leads from it to a {names}", after.get(node)
            else:
                why, obstacle = f"leads from a {names} to it", before.get(node)
            why = f"no path of operators in integers {why}"
            if obstacle is None:
                return why, ()
            return f"{why}: '{obstacle.name}' ({obstacle.op_type}) is in the way", (obstacle,)

        return reason

    def _ends(self, candidates: Candidates) -> set[ir.Node]:
        return {node for node in candidates.taken if node.op_type in self.ends}


def _carries(edge: Edge) -> bool:
    return edge.carries


def _in_integers(candidates: Candidates):
    taken = candidates.taken
    return lambda edge: edge.carries and edge.target in taken
