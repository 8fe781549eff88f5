"""Paths from starts to ends, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail_placement.search.edges import DOWN
from dovetail_placement.search.match import is_in, match

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.search.edges import Direction, SearchGraph
    from dovetail_placement.search.match import Nodes, Relay


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
