"""Matching of small node patterns, such as a product and its activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.search.graph import SearchGraph


@dataclass(frozen=True)
class Pattern:
    """A small connected graph of nodes.

    Attributes:
        nodes: The operator of each node, or a predicate.
        edges: Pairs of positions in `nodes`: the second node reads an output of the first.
        exclusive: Whether inner values must stay inside: only first nodes may read values computed by other nodes, and
            only last nodes may have users outside or be outputs of the model.

    Raises:
        DovetailError: An edge names no node, or the pattern is disconnected or cyclic.
    """

    nodes: tuple[str | Callable[[ir.Node], bool], ...]
    edges: tuple[tuple[int, int], ...] = ()
    exclusive: bool = True

    def __post_init__(self) -> None:
        if any(not (0 <= end < len(self.nodes)) for edge in self.edges for end in edge):
            raise DovetailError(f"an edge of a pattern of {len(self.nodes)} nodes names another one: {self.edges}")
        if not self.nodes or len(self.order()) < len(self.nodes):
            raise DovetailError("a pattern must be connected", "search for its parts one by one")
        left = set(range(len(self.nodes)))
        while ready := [node for node in left if not any(b == node and a in left for a, b in self.edges)]:
            left.difference_update(ready)
        if left:
            raise DovetailError("a pattern must have no cycle", "a graph has none either")

    def order(self) -> list[int]:
        """Positions in an order in which every node but the first is adjacent to an earlier one."""
        found = [0]
        for position in found:
            beside = [b if a == position else a for a, b in self.edges if position in (a, b)]
            found += dict.fromkeys(other for other in beside if other not in found)
        return found


def matches_of(graph: SearchGraph, pattern: Pattern) -> Iterator[tuple[ir.Node, ...]]:
    """Yield every match of distinct nodes, in the order of `pattern.nodes`.

    Candidates are neighbors of nodes already matched, so the time is linear in the graph for patterns whose nodes have
    few neighbors. The number of matches grows with the choices among the users of one value.
    """
    order, count = pattern.order(), len(pattern.nodes)
    first, *rest = order
    for node in graph.nodes:
        if not _fits(graph, pattern, first, node):
            continue
        chosen = {first: node}
        waiting = [iter(_candidates(graph, pattern, rest[0], chosen)) if rest else iter(())]
        if not rest:
            yield (node,)
        while waiting:
            position = order[len(waiting)] if rest else first
            chosen.pop(position, None)
            candidate = next(waiting[-1], None)
            if candidate is None:
                waiting.pop()
                continue
            chosen[position] = candidate
            if len(chosen) < count:
                waiting.append(iter(_candidates(graph, pattern, order[len(waiting) + 1], chosen)))
            elif not pattern.exclusive or _closed(graph, pattern, chosen):
                yield tuple(chosen[index] for index in range(count))


def _fits(graph: SearchGraph, pattern: Pattern, position: int, node: ir.Node) -> bool:
    """Check whether a node matches a position, and has no extra neighbors that an exclusive pattern forbids."""
    wanted = pattern.nodes[position]
    if not (wanted(node) if callable(wanted) else node.op_type == wanted):
        return False
    if not pattern.exclusive:
        return True
    read = any(a == position for a, _ in pattern.edges)
    return not read or len({edge.target for edge in graph.readers[node]}) < len(pattern.nodes)


def _candidates(graph: SearchGraph, pattern: Pattern, position: int, chosen: dict[int, ir.Node]) -> list[ir.Node]:
    """Return nodes that match a position and are adjacent to the chosen ones."""
    readers_of = [chosen[a] for a, b in pattern.edges if b == position and a in chosen]
    read_by = [chosen[b] for a, b in pattern.edges if a == position and b in chosen]
    if readers_of:
        near = dict.fromkeys(edge.target for edge in graph.readers[readers_of[0]])
    else:
        near = dict.fromkeys(edge.source for edge in graph.producers[read_by[0]])
    taken = chosen.values()
    return [
        node
        for node in near
        if all(node is not other for other in taken)
        and _fits(graph, pattern, position, node)
        and all(_reads(graph, node, other) for other in readers_of)
        and all(_reads(graph, other, node) for other in read_by)
    ]


def _reads(graph: SearchGraph, reader: ir.Node, node: ir.Node) -> bool:
    if len(graph.producers[reader]) < len(graph.readers[node]):
        return any(edge.source is node for edge in graph.producers[reader])
    return any(edge.target is reader for edge in graph.readers[node])


def _closed(graph: SearchGraph, pattern: Pattern, chosen: dict[int, ir.Node]) -> bool:
    inside = set(chosen.values())
    reading, read = {b for _, b in pattern.edges}, {a for a, _ in pattern.edges}
    for position, node in chosen.items():
        if position in reading and any(edge.source not in inside for edge in graph.producers[node]):
            return False
        leaves = any(edge.target not in inside for edge in graph.readers[node])
        if position in read and (leaves or any(value.is_graph_output() for value in node.outputs)):
            return False
    return True
