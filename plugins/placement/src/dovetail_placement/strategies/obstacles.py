"""Why no path of integers leads to a node: what stands between."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail_placement.search import DOWN

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.search.edges import Direction
    from dovetail_placement.strategies.integers import Candidates


Reasons = Callable[["ir.Node"], tuple[str, tuple["ir.Node", ...]]]
"""Why a node was not selected, and the nodes that this is because of."""


def obstacles(candidates: Candidates, direction: Direction) -> dict[ir.Node, ir.Node]:
    """The nearest node that is not in integers before each node (`DOWN`) or behind it (`UP`), if there is one.

    One walk: the obstacle of a node is a neighbour that is one, or that of its first neighbour that has one.
    """
    graph, taken = candidates.graph, candidates.taken
    found: dict[ir.Node, ir.Node] = {}
    for node in graph.nodes if direction == DOWN else reversed(graph.nodes):
        if direction == DOWN:
            near = [edge.source for edge in graph.producers[node] if edge.carries]
        else:  # what turns numbers into indices is in the way, too
            near = [edge.target for edge in graph.readers[node] if edge.kind == "data"]
        obstacle = None
        for other in near:
            if other not in taken:
                obstacle = other
                break
            obstacle = obstacle or found.get(other)
        if obstacle is not None:
            found[node] = obstacle
    return found
