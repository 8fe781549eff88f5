"""Paths from start to end nodes: the nodes on any path, or the paths one by one."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING

from dovetail_placement.search.graph import DOWN

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.search.graph import Direction, Edge, SearchGraph


Nodes = Callable[["ir.Node"], bool] | Container["ir.Node"]
"""A set of nodes: a predicate, or a collection."""
Relay = Callable[["Edge"], bool]
"""Predicate on whether a walk may continue along an edge."""


def match(
    graph: SearchGraph,
    *,
    start: Nodes,
    relay: Relay,
    end: Nodes | None,
    direction: Direction = DOWN,
    along: Relay | None = None,
) -> set[ir.Node]:
    """Return the nodes on all paths from a start to an end, both included.

    A path is walked from its start along `direction`. It stops at the first end: nodes are tested for being an end
    before `relay`, which is not tested on that last edge. All earlier edges must relay. A start from which no path
    reaches an end is not in the result, unless it is on another start's path. Starts are not tested for being ends.

    Every node is visited once, so the time is linear in nodes and edges, however many paths there are. The order of
    nodes does not matter.

    Args:
        graph: The edges to walk.
        start: The start nodes.
        relay: Whether a path may continue along an edge to a node that is not an end.
        end: The end nodes; None: wherever paths cannot continue, so that all visited nodes are in the result.
        direction: `DOWN`, to users, or `UP`, to producers.
        along: Restricts the edges of this search, including the last one of a path; None for all edges.
    """
    is_start, is_end = is_in(start), is_in(end) if end is not None else None
    edges, downward = graph.edges(direction), direction == DOWN
    walked = [node for node in graph.nodes if is_start(node)]
    seen = set(walked)
    relayed_from: dict[ir.Node, list[ir.Node]] = {}
    ends: set[ir.Node] = set()
    reaching: list[ir.Node] = []
    for node in walked:  # grows during iteration
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
    for node in reaching:  # backwards, from the nodes before the ends
        for before in relayed_from.get(node, ()):
            if before not in matched:
                matched.add(before)
                reaching.append(before)
    return matched | ends


def connected(graph: SearchGraph, *, start: Nodes, relay: Relay) -> set[ir.Node]:
    """Return the starts and all nodes connected to them by relaying edges, in either direction.

    Args:
        graph: The edges to walk.
        start: The start nodes.
        relay: Whether a walk may follow an edge.
    """
    is_start = is_in(start)
    walked = [node for node in graph.nodes if is_start(node)]
    seen = set(walked)
    for node in walked:  # grows during iteration
        near = [edge.target for edge in graph.readers[node] if relay(edge)]
        near += [edge.source for edge in graph.producers[node] if relay(edge)]
        for other in near:
            if other not in seen:
                seen.add(other)
                walked.append(other)
    return seen


def is_in(nodes: Nodes) -> Callable[[ir.Node], bool]:
    """Return a predicate for membership in `nodes`."""
    return nodes if callable(nodes) else nodes.__contains__


def paths(
    graph: SearchGraph,
    *,
    start: Nodes,
    relay: Relay,
    end: Nodes | None,
    direction: Direction = DOWN,
    along: Relay | None = None,
) -> Iterator[tuple[ir.Node, ...]]:
    """Yield every path that `match` covers, from its start to its end, each once.

    There may be exponentially many, as after a chain of diamonds; consume only as many as needed. Walks that reach no
    end are pruned, so the delay between paths is bounded by path length times the edges per node.

    Args:
        graph: The edges to walk.
        start: The start nodes; paths follow graph order.
        relay: Whether a path may continue along an edge to a node that is not an end.
        end: The end nodes; None: wherever paths cannot continue.
        direction: `DOWN`, to users, or `UP`, to producers.
        along: Restricts the edges of this search; None for all edges.
    """
    matched = match(graph, start=start, relay=relay, end=end, direction=direction, along=along)
    is_start, is_end = is_in(start), is_in(end) if end is not None else None
    edges = graph.edges(direction)

    def hops(node: ir.Node) -> list[tuple[ir.Node, bool]]:
        """Return the next nodes of paths, each once, and whether a path stops there."""
        found: dict[ir.Node, bool] = {}
        for edge in edges[node]:
            other = edge.target if direction == DOWN else edge.source
            if other not in matched or along is not None and not along(edge):
                continue
            if is_end is not None and is_end(other):
                found[other] = True
            elif relay(edge):
                found[other] = False
        return list(found.items())

    for first in graph.nodes:
        if not is_start(first) or first not in matched:
            continue
        path, waiting = [first], [_hops_or_end(hops(first), is_end is None)]
        while waiting:
            hop = next(waiting[-1], None)
            if hop is None:
                waiting.pop()
                path.pop()
            elif hop[0] is None:
                yield tuple(path)
            elif hop[1]:
                yield (*path, hop[0])
            else:
                path.append(hop[0])
                waiting.append(_hops_or_end(hops(hop[0]), is_end is None))


def _hops_or_end(hops: list[tuple[ir.Node, bool]], open_end: bool) -> Iterator[tuple[ir.Node | None, bool]]:
    """Yield the hops to take; without explicit ends, a node without hops ends a path."""
    return iter(hops if hops or not open_end else [(None, True)])
