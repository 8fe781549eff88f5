"""The `form-regions` pass: number the regions, convex parts of one backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.flat_graph import FlatGraph
from dovetail.passes import Pass
from dovetail.planning.placement import Placement, get_placement, set_placement

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["FormRegions"]


@dataclass(frozen=True)
class FormRegions(Pass):
    """Number the regions: maximal convex sets of nodes of one backend, in topological order.

    Given:  every node has a backend
    Result: every node has the number of its region; nodes of bodies share that of their control-flow node.
    """

    name = "form-regions"
    stage = "outline"

    def run(self, model: Model, ctx: Context) -> bool:
        """Annotate; the graph does not change."""
        number_regions(model, ctx)
        return False


def number_regions(model: Model, ctx: Context) -> None:
    """Number the regions of `model`. Runs twice: for the plan before casts are inserted, and again afterwards."""
    from dovetail.runtime.regions import form_regions

    flat = ctx.analysis(FlatGraph, model)
    regions = form_regions(model.graph, lambda node: get_placement(node).backend)
    for region in regions:
        # Nodes that share a placement keep sharing one. Keys stay valid: all looked-up placements outlive this loop.
        moved: dict[int, Placement] = {}
        for node in region.nodes:
            for part in (node, *flat.body_nodes(node)):
                before = get_placement(part)
                after = moved.get(id(before)) or moved.setdefault(id(before), before.in_region(region.index))
                set_placement(part, after)
    ctx.count("regions", len(regions))
