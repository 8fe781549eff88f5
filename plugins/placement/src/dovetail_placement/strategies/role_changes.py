"""Changes of node roles: profitable edits, loss of neighbors, and remedies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dovetail.plugin import Remedy, remedy

from dovetail_placement.search.graph import carries_numbers

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.planning import Claim
    from dovetail.plugin import View

    from dovetail_placement.search import Edge, SearchGraph


Sides = frozenset["tuple[ir.Node, str]"]
"""Sides of nodes at which an edit is made."""

_ROUNDS = 2  # a node may lack a neighbor on both sides


class EditPlace(NamedTuple):
    """The place of a profitable edit.

    Attributes:
        node: The node to edit next to.
        side: `before` or `after`.
        brought: The nodes that it brings to the backend, together with edits at some of them.
    """

    node: ir.Node
    side: str
    brought: tuple[ir.Node, ...]


def places_that_pay(
    graph: SearchGraph,
    lost: Mapping[ir.Node, tuple[str, ir.Node | None]],
    losses: Callable[[Sides], Mapping[ir.Node, tuple[str, ir.Node | None]]],
    fits: Callable[[ir.Node, str], bool],
) -> list[EditPlace]:
    """Return the places of edits that bring more nodes than there are edits, per connected set of these nodes.

    An edit is placed where a loss originates: at a node whose missing neighbor was not lost itself. The time is linear
    in the edges.

    Args:
        graph: The graph.
        lost: The nodes that lack a neighbor: on which side, and the blocking neighbor.
        losses: Returns the losses that remain with edits at given sides.
        fits: Whether the edit can be made at a side of a node.
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
            places += [EditPlace(node, side, tuple(members)) for node, side in inside]
    return places


def _connected(graph: SearchGraph, nodes: Iterable[ir.Node]) -> Iterable[list[ir.Node]]:
    """Yield sets of nodes connected by data edges, each in graph order."""
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


class Loss(NamedTuple):
    """The reason why a node cannot stay.

    Attributes:
        rule: `passive` or `tail`.
        why: The reason in one clause.
        because: The blocking node, or None.
        side: The side of the missing neighbor: `before` or `after`.
    """

    rule: str
    why: str
    because: ir.Node | None
    side: str


def moved(edges: Iterable[Edge]) -> Iterator[Edge]:
    """Yield the edges that carry data, not extents or indices."""
    return (edge for edge in edges if edge.kind == "data")


def sides_of(lost: Mapping[ir.Node, Loss]) -> dict[ir.Node, tuple[str, ir.Node | None]]:
    """Return, per lost node, the side on which it lacks a neighbor, and the blocking one."""
    return {node: (loss.side, loss.because) for node, loss in lost.items()}


def missing_before(graph: SearchGraph, node: ir.Node, here: dict[ir.Node, Claim], edited: bool = False) -> Loss | None:
    """Return the loss of a passive node whose moved data is not computed here; an edit replaces the first input."""
    edges = {edge.input: edge for edge in graph.producers[node]}
    for index, value in enumerate(node.inputs):
        if edited and index == 0:
            continue
        edge = edges.get(index)
        if edge is None and value is not None and value.is_graph_input() and carries_numbers(value):
            return Loss("passive", f"it reads '{value.name}', an input of the model", None, "before")
        if edge is not None and edge.kind == "data" and edge.source not in here:
            why = f"'{edge.source.name}' ({edge.source.op_type}), which it reads, is not there"
            return Loss("passive", why, edge.source, "before")
    return None


def loss_without_user(graph: SearchGraph, node: ir.Node, rule: str, ends: str = "") -> Loss:
    """Return the loss of a node without users on the backend; `ends` describes legal region ends, as a clause."""
    reader = next((edge.target for edge in graph.readers[node]), None)
    why = "nothing reads it" if reader is None else f"'{reader.name}' ({reader.op_type}), which reads it, is not there"
    if reader is None and any(value.is_graph_output() for value in node.outputs):
        why = "it gives an output of the model"
    if ends:
        why = f"{why}, and {ends}"
    return Loss(rule, why, reader, "after")


_SIDES = ("before", "after")


def remedies_of_manual(node: ir.Node, backend: str, edits: Mapping[str, str]) -> Iterator[Remedy]:
    """Yield remedies for a node that must be requested explicitly.

    Args:
        node: The node.
        backend: The name of the backend.
        edits: The available edits that give it a neighbor, by side.
    """
    pin = f"{node.name}={backend}"
    yield remedy((pin,))
    yield from (remedy((pin,), (edits[side],)) for side in _SIDES if side in edits)


def remedies_of_lost(
    view: View, node: ir.Node, edits: Mapping[str, str], blocker: ir.Node | None, side: str
) -> Iterator[Remedy]:
    """Yield remedies for a node that lacks a neighbor.

    Args:
        view: The strategy's view.
        node: The node.
        edits: The available edits that give it a neighbor, by side.
        blocker: The blocking node, or None.
        side: The side of the missing neighbor.
    """
    name = view.backend.name
    if blocker is not None and view.verdict(blocker).role == "manual" and view.verdict(blocker).ok is not False:
        yield remedy((f"{blocker.name}={name}",))
    chosen = [edits[at] for at in (_SIDES if side == "before" else _SIDES[::-1]) if at in edits]
    yield from (remedy(edits=(edit,)) for edit in chosen)
    yield from (remedy((f"{node.name}={name}",), (edit,)) for edit in chosen)
    if len(chosen) > 1:
        yield remedy(edits=tuple(chosen))
