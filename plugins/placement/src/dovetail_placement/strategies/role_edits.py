"""Edits that pay: where a neighbour on the backend is all that nodes lack, and it brings more nodes than it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.search import SearchGraph


Sides = frozenset["tuple[ir.Node, str]"]
"""Sides of nodes at which an edit stands."""

_ROUNDS = 2  # a node may lack a neighbour at both sides


class Place(NamedTuple):
    """Where an edit pays.

    Attributes:
        node: The node that it is made next to.
        side: `before` or `after`.
        brought: The nodes that it brings to the backend, with other edits beside some of them.
    """

    node: ir.Node
    side: str
    brought: tuple[ir.Node, ...]


def places_that_pay(
    graph: SearchGraph,
    lost: Mapping[ir.Node, tuple[str, ir.Node | None]],
    losses: Callable[[Sides], Mapping[ir.Node, tuple[str, ir.Node | None]]],
    fits: Callable[[ir.Node, str], bool],
) -> list[Place]:
    """The places of edits that bring more nodes than there are edits, in each connected set of nodes that are brought.

    An edit stands where a loss begins: at a node whose missing neighbour was not lost itself. The time is
    linear in the edges.

    Args:
        graph: The graph.
        lost: The nodes that lack a neighbour: at which side, and the neighbour that is in the way.
        losses: What is lost with edits at some sides.
        fits: Whether the edit can be made there.
    """
    sides: set[tuple[ir.Node, str]] = set()
    left = lost
    for _ in range(_ROUNDS):
        roots = ((node, side) for node, (side, because) in left.items() if because not in left)
        new = {place for place in roots if fits(*place)} - sides
        if not new:
            break
        sides |= new
        left = losses(frozenset(sides))
    brought = set(lost) - set(left)
    places = []
    for members in _connected(graph, [node for node in graph.nodes if node in brought]):
        inside = [(node, side) for node in members for side in ("before", "after") if (node, side) in sides]
        if len(members) > len(inside):
            places += [Place(node, side, tuple(members)) for node, side in inside]
    return places


def _connected(graph: SearchGraph, nodes: Iterable[ir.Node]) -> Iterable[list[ir.Node]]:
    """Sets of nodes that edges of numbers connect, each in graph order."""
    order = {node: i for i, node in enumerate(nodes)}
    seen: set[ir.Node] = set()
    for first in order:
        if first in seen:
            continue
        members, waiting = [], [first]
        seen.add(first)
        while waiting:
            node = waiting.pop()
            members.append(node)
            near = [edge.target for edge in graph.readers[node] if edge.kind == "data"]
            near += [edge.source for edge in graph.producers[node] if edge.kind == "data"]
            new = [other for other in dict.fromkeys(near) if other in order and other not in seen]
            seen.update(new)
            waiting += new
        yield sorted(members, key=order.__getitem__)
