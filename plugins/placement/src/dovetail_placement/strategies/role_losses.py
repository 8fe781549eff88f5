"""Why nodes cannot stay on a backend with roles: what stands before or behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dovetail_placement.search.sockets import carries_numbers

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.planning.claim import Claim

    from dovetail_placement.search import Edge, SearchGraph


class Loss(NamedTuple):
    """Why a node cannot stay.

    Attributes:
        rule: `passive` or `tail`.
        why: In one clause.
        because: The node that is in the way, if there is one.
        side: Where something is missing: `before` or `after`.
    """

    rule: str
    why: str
    because: ir.Node | None
    side: str


def moved(edges: Iterable[Edge]) -> Iterator[Edge]:
    """The edges along which numbers flow, and not extents or indices."""
    return (edge for edge in edges if edge.kind == "data")


def sides_of(lost: Mapping[ir.Node, Loss]) -> dict[ir.Node, tuple[str, ir.Node | None]]:
    """At which side lost nodes lack a neighbour, and the one that is in the way."""
    return {node: (loss.side, loss.because) for node, loss in lost.items()}


def missing_before(graph: SearchGraph, node: ir.Node, here: dict[ir.Node, Claim], edited: bool = False) -> Loss | None:
    """Whether something that a passive node moves is not computed here; an edit computes the first of it."""
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


def missing_behind(graph: SearchGraph, node: ir.Node, rule: str, ends: str = "") -> Loss:
    """Nothing on the backend reads a node; `ends` says what may end a region, as a clause."""
    reader = next((edge.target for edge in graph.readers[node]), None)
    why = "nothing reads it" if reader is None else f"'{reader.name}' ({reader.op_type}), which reads it, is not there"
    if reader is None and any(value.is_graph_output() for value in node.outputs):
        why = "it gives an output of the model"
    if ends:
        why = f"{why}, and {ends}"
    return Loss(rule, why, reader, "after")
