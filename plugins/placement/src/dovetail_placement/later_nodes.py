"""Placements of nodes that passes add after placing, such as those of a vendor's rewrite behind `join`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.flat_graph import FlatGraph
from dovetail.ir.formats import Format, format_of
from dovetail.planning.placement import HOST, Placement, get_placement, set_placement

from dovetail_placement.judges import Judges

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context


def place_later_nodes(model: Model, ctx: Context) -> None:
    """Place every node that has no placement yet: with its producer, else its reader, if that backend takes it.

    What neither backend takes is placed on the host. A node of a body is on the backend of its control-flow node,
    because one engine runs them together.
    """
    flat = ctx.analysis(FlatGraph, model)
    later = [node for node in flat.nodes if get_placement(node) is None]
    if not later:
        return
    judges, backends = Judges(model, ctx), {backend.name: backend for backend in ctx.backends}
    for node in later:
        outermost = flat.outermost(node)
        if outermost is not node and (holder := get_placement(outermost)) is not None:
            chosen = holder.backend
        else:
            beside = (name for name in _beside(node) if name in backends)
            chosen = next((name for name in beside if judges.of(backends[name])(node).ok), HOST)
        set_placement(node, Placement(chosen, _precision(node)))
        ctx.remark("passed", node, "placed-later", f"on {chosen}: a pass added the node after nodes were placed")


def _beside(node: ir.Node) -> dict[str, None]:
    """The backends of producers, then of readers."""
    producers = (value.producer() for value in node.inputs if value is not None)
    readers = (reader for value in node.outputs for reader, _ in value.uses())
    placements = (get_placement(other) for other in (*producers, *readers) if other is not None)
    return dict.fromkeys(placement.backend for placement in placements if placement is not None)


def _precision(node: ir.Node) -> Format | None:
    kinds = [value.dtype for value in (*node.outputs, *node.inputs) if value is not None and value.dtype is not None]
    return format_of(kinds[0]) if kinds else None
