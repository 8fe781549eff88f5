"""Matching: the nodes on any path from a start to an end, without listing paths."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from dovetail_placement.search.edges import DOWN

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.search.edges import Direction, Edge, SearchGraph


Nodes = Callable[["ir.Node"], bool] | Container["ir.Node"]
"""Some nodes: a test of one, or a collection."""
Relay = Callable[["Edge"], bool]
"""Whether a walk may go on along an edge."""


def match(
    graph: SearchGraph,
    *,
    start: Nodes,
    relay: Relay,
    end: Nodes | None,
    direction: Direction = DOWN,
    along: Relay | None = None,
) -> set[ir.Node]:
    """The nodes on all paths from a start to an end, both included.

    A path is walked from its start along `direction`. It stops at the first end: whether a node is an end is asked
    before `relay`, which is not asked for that last edge. All edges before it must relay. A start from which no path
    reaches an end is not in the result, unless it lies on another start's path. Starts are not asked whether they are
    ends.

    Every node is walked once, so the time is linear in nodes and edges, however many paths there are; the order of the
    nodes does not matter.

    Args:
        graph: The edges to walk.
        start: Where paths begin.
        relay: Whether a path may go on along an edge to a node that is no end.
        end: Where paths stop; None: wherever they cannot go on, so that everything walked is in the result.
        direction: `DOWN`, to readers, or `UP`, to producers.
        along: The edges that exist for this search, the last one of a path included; None: all of them.
    """
    is_start, is_end = is_in(start), is_in(end) if end is not None else None
    edges, downward = graph.edges(direction), direction == DOWN
    walked = [node for node in graph.nodes if is_start(node)]
    seen = set(walked)
    relayed_from: dict[ir.Node, list[ir.Node]] = {}
    ends: set[ir.Node] = set()
    reaching: list[ir.Node] = []
    for node in walked:  # grows while it is walked
        for edge in edges[node]:
            if along is not None and not along(edge):
                continue
            other = edge.target if downward else edge.source
            if is_end is not None and is_end(other):
                ends.add(other)
                reaching.append(node)
            elif relay(edge):
                relayed_from.setdefault(other, []).append(node)
                if other not in seen:
                    seen.add(other)
                    walked.append(other)
    if is_end is None:
        return seen
    matched = set(reaching)
    reaching = list(matched)
    for node in reaching:  # backwards, from the nodes in front of the ends
        for before in relayed_from.get(node, ()):
            if before not in matched:
                matched.add(before)
                reaching.append(before)
    return matched | ends


def connected(graph: SearchGraph, *, start: Nodes, relay: Relay) -> set[ir.Node]:
    """The starts and all nodes that edges which relay connect with them, in whatever direction they lead.

    Args:
        graph: The edges to walk.
        start: Where walks begin.
        relay: Whether a walk may go along an edge.
    """
    is_start = is_in(start)
    walked = [node for node in graph.nodes if is_start(node)]
    seen = set(walked)
    for node in walked:  # grows while it is walked
        near = [edge.target for edge in graph.readers[node] if relay(edge)]
        near += [edge.source for edge in graph.producers[node] if relay(edge)]
        for other in near:
            if other not in seen:
                seen.add(other)
                walked.append(other)
    return seen


def is_in(nodes: Nodes) -> Callable[[ir.Node], bool]:
    """A test whether a node is one of `nodes`."""
    return nodes if callable(nodes) else nodes.__contains__
