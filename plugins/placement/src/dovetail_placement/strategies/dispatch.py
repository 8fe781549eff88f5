"""Strategies for integers modeled on PPQ's dispatchers: how far around products they extend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail_placement.search import DOWN, UP, connected, match
from dovetail_placement.strategies.integers import IntegerStrategy, obstacles

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.search import Edge
    from dovetail_placement.strategies.integers import IntegerCandidates, Reasons


class Aggressive(IntegerStrategy):
    """Claims products and everything that their numbers reach, through any operator.

    Only NonMaxSuppression, Shape and TopK stop it. An operator that is not in integers becomes an island of floats.
    """

    follow = False

    def select(self, candidates: IntegerCandidates) -> set[ir.Node]:
        """Return the products, and the nodes that they reach."""
        return match(
            candidates.graph,
            start=candidates.is_product,
            relay=lambda edge: edge.carries and not candidates.is_index_source(edge.target),
            end=None,
        )

    def why_not(self, candidates: IntegerCandidates) -> Reasons:
        """Explain that the remaining nodes read no number of a product."""
        products = candidates.products
        return lambda node: (f"it computes nothing from the result of a product ({products})", ())


class Conservative(IntegerStrategy):
    """Claims products, and the nodes that their numbers reach through operators in integers.

    The first operator that is not in integers stops it; later nodes stay in floats until the next product.
    """

    def select(self, candidates: IntegerCandidates) -> set[ir.Node]:
        """Return the products, and the nodes that they reach."""
        taken = candidates.taken
        return match(
            candidates.graph,
            start=candidates.is_product,
            relay=lambda edge: edge.carries and edge.target in taken,
            end=None,
        )

    def why_not(self, candidates: IntegerCandidates) -> Reasons:
        """Return the obstacle between a node and the products before it."""
        before = obstacles(candidates, DOWN)

        def reason(node: ir.Node) -> tuple[str, tuple[ir.Node, ...]]:
            obstacle = before.get(node)
            if obstacle is None:
                return f"no product ({candidates.products}) comes before it", ()
            return f"it is behind '{obstacle.name}' ({obstacle.op_type}), which is not in integers", (obstacle,)

        return reason


class Perseus(IntegerStrategy):
    """Claims products, and everything connected to them by values, upstream and downstream."""

    follow = False

    def select(self, candidates: IntegerCandidates) -> set[ir.Node]:
        """Return the products, and the nodes connected to them."""
        return connected(candidates.graph, start=candidates.is_product, relay=lambda edge: edge.carries)

    def why_not(self, candidates: IntegerCandidates) -> Reasons:
        """Explain that the remaining nodes exchange no numbers with a product."""
        products = candidates.products
        return lambda node: (f"no values connect it with a product ({products})", ())


class Pointwise(IntegerStrategy):
    """Claims products only; everything between them stays in floats."""

    follow = False

    def select(self, candidates: IntegerCandidates) -> set[ir.Node]:
        """Return the products."""
        return {node for node in candidates.graph.nodes if candidates.is_product(node)}

    def why_not(self, candidates: IntegerCandidates) -> Reasons:
        """Explain that the remaining nodes are not products."""
        products = candidates.products
        return lambda node: (f"{node.op_type} is no product ({products})", ())


class AllIn(IntegerStrategy):
    """Claims every node that the backend supports in integers."""

    follow = False

    def select(self, candidates: IntegerCandidates) -> set[ir.Node]:
        """Return all nodes."""
        return set(candidates.graph.nodes)

    def why_not(self, candidates: IntegerCandidates) -> Reasons:
        """Give no reason, because no node remains."""
        return lambda node: (f"the strategy leaves out '{node.name}'", ())


@dataclass(frozen=True)
class ConvToConv(IntegerStrategy):
    """Claims the nodes on paths from one convolution to the next, if all operators between are in integers.

    So a region begins and ends with a convolution, or with the activation after one.

    Attributes:
        ends: Operators that paths begin and end with.
    """

    ends: tuple[str, ...] = ("Conv",)

    def select(self, candidates: IntegerCandidates) -> set[ir.Node]:
        """Return the nodes on these paths, with the convolutions at both ends."""
        ends = self._ends(candidates)
        return match(candidates.graph, start=ends, relay=_in_integers(candidates), end=ends, along=_carries)

    def why_not(self, candidates: IntegerCandidates) -> Reasons:
        """Return the side on which no path leads to a convolution, and the obstacle."""
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

    def _ends(self, candidates: IntegerCandidates) -> set[ir.Node]:
        return {node for node in candidates.taken if node.op_type in self.ends}


def _carries(edge: Edge) -> bool:
    return edge.carries


def _in_integers(candidates: IntegerCandidates):
    taken = candidates.taken
    return lambda edge: edge.carries and edge.target in taken
