"""Paths from starts to ends: the nodes on any of them, and the paths one by one."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING

from dovetail_placement.search.graph import DOWN

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.search.graph import Direction, Edge, SearchGraph


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


def paths(
    graph: SearchGraph,
    *,
    start: Nodes,
    relay: Relay,
    end: Nodes | None,
    direction: Direction = DOWN,
    along: Relay | None = None,
) -> Iterator[tuple[ir.Node, ...]]:
    """Yield every path that `match` is about, from its start to its end, each once.

    There may be exponentially many, as behind a chain of diamonds; take as many as you need. No work is done for walks
    that reach no end, so the next path is never further away than its length times the edges of its nodes.

    Args:
        graph: The edges to walk.
        start: Where paths begin; their order is that of the graph.
        relay: Whether a path may go on along an edge to a node that is no end.
        end: Where paths stop; None: wherever they cannot go on.
        direction: `DOWN`, to readers, or `UP`, to producers.
        along: The edges that exist for this search; None: all of them.
    """
    matched = match(graph, start=start, relay=relay, end=end, direction=direction, along=along)
    is_start, is_end = is_in(start), is_in(end) if end is not None else None
    edges = graph.edges(direction)

    def hops(node: ir.Node) -> list[tuple[ir.Node, bool]]:
        """The next nodes of paths, each once, and whether a path stops there."""
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
    """The hops to take; without ends, a node that has none is where a path stops."""
    return iter(hops if hops or not open_end else [(None, True)])
