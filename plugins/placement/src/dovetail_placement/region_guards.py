"""Guards of regions: limits of a backend on the nodes, inputs, outputs and operators of a whole region.

Regions exist only after placement, so they are checked then. The nodes of a refused region go to the next backend, and
the regions that remain are checked again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir.flat_graph import FlatGraph
from dovetail.planning.identity import operator_name
from dovetail.planning.placement import get_placement
from dovetail.runtime.regions import Region, form_regions, used_values

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.verdict import Refusal
    from dovetail.plugin.protocols import Backend

    from dovetail_placement.place import Placer

__all__ = ["RefusedRegion", "ban_regions", "refused_regions"]


class RefusedRegion(NamedTuple):
    """A region that its backend refuses.

    Attributes:
        region: The region.
        reasons: The violated guards.
    """

    region: Region
    reasons: tuple[Refusal, ...]


def refused_regions(model: Model, ctx: Context) -> list[RefusedRegion]:
    """Return the regions of a placed model that their backends refuse; conversions are not inserted yet."""
    asked = {backend.name: backend for backend in ctx.backends if getattr(backend, "limits_regions", False)}
    if not asked:
        return []
    flat = ctx.analysis(FlatGraph, model)
    regions = form_regions(model.graph, lambda node: get_placement(node).backend)
    judged = ((region, _judged(region, asked[region.backend], flat)) for region in regions if region.backend in asked)
    return [RefusedRegion(region, reasons) for region, reasons in judged if reasons]


def ban_regions(refused: Iterable[RefusedRegion], placer: Placer, ctx: Context) -> None:
    """Ban the nodes of refused regions from their backends, with a remark on each."""
    for region, reasons in refused:
        first, last = region.nodes[0], region.nodes[-1]
        which = f"from '{first.name}' to '{last.name}'" if first is not last else f"of '{first.name}'"
        why = f"it does not take the region {which}: {'; '.join(reason.text for reason in reasons)}"
        for node in region.nodes:
            text = f"not on {region.backend}: {why}"
            ctx.remark("missed", node, "region", text, source=reasons[0].source)
            placer.ban(node, region.backend, why)


def _judged(region: Region, backend: Backend, flat: FlatGraph) -> tuple[Refusal, ...]:
    nodes = [part for node in region.nodes for part in (node, *flat.body_nodes(node))]
    constants = {id(value) for node in region.nodes for value in used_values(node) if value.is_initializer()}
    counts = {
        "nodes": len(nodes),
        "inputs": len(region.inputs),
        "outputs": len(region.outputs),
        "constants": len(constants),
    }
    return tuple(backend.region_refusals(counts, {operator_name(node.domain, node.op_type) for node in nodes}))
