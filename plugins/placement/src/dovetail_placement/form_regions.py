"""The `form-regions` pass: number the regions, convex parts of one backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.flat_graph import FlatGraph
from dovetail.passes import Pass
from dovetail.planning.placement import Placement, get_placement, set_placement

from dovetail_placement.conversion_regions import copy_conversions, settled_regions
from dovetail_placement.later_nodes import place_later_nodes
from dovetail_placement.region_maxima import split_regions

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.plugin.services import RegionView
    from dovetail_transforms.regions.regions import Region


DEFAULT_FORMER = "waves"
"""The former of the backends that name none."""


class Waves:
    """Forms as few regions as possible: see `dovetail_placement.waves`."""

    def form(self, view: RegionView) -> list[list[ir.Node]]:
        """Return the regions of `view.nodes`, with those that are formed already in their places."""
        from dovetail_placement.waves import wave_groups

        groups = wave_groups(view.graph, view.backend_of, view.reads, view.formed)
        wanted = set(view.nodes)
        return [group for group in groups if group[0] in wanted]


@dataclass(frozen=True)
class FormRegions(Pass):
    """Number the regions: maximal convex sets of nodes of one backend, in topological order.

    Given:  every node has a backend
    Result: every node has the number of its region; nodes of bodies share that of their control-flow node.
    """

    name = "form-regions"
    stage = "outline"

    def run(self, model: Model, ctx: Context) -> bool:
        """Annotate all nodes, those that came after placing included.

        The graph changes only where several regions read one conversion: each gets one of its own.
        """
        place_later_nodes(model, ctx)
        copied = False
        while copy_conversions(model, _formed(model, ctx), _floats_cross(ctx), ctx):
            copied = True
        number_regions(model, ctx)
        return copied


def number_regions(model: Model, ctx: Context) -> None:
    """Number the regions of `model`. Runs twice: for the plan before casts are inserted, and again afterwards."""
    flat = ctx.analysis(FlatGraph, model)
    regions = regions_of(model, ctx)
    for region in regions:
        # Nodes that share a placement keep sharing one. Keys stay valid: all looked-up placements outlive this loop.
        moved: dict[int, Placement] = {}
        for node in region.nodes:
            for part in (node, *flat.body_nodes(node)):
                before = get_placement(part)
                assert before is not None
                after = moved.get(id(before)) or moved.setdefault(id(before), before.in_region(region.index))
                set_placement(part, after)
    ctx.count("regions", len(regions))


def regions_of(model: Model, ctx: Context) -> list[Region]:
    """Return the regions of a placed model, formed as its backends want them, and none larger than they take.

    Raises:
        DovetailError: A former is not installed, or breaks its contract.
    """
    regions = settled_regions(model.graph, _formed(model, ctx), _floats_cross(ctx))
    maxima = {backend.name: backend.region_maxima for backend in ctx.backends}
    return split_regions(model.graph, regions, maxima, ctx.analysis(FlatGraph, model))


def _formed(model: Model, ctx: Context) -> list[Region]:
    """The regions as their formers want them."""
    from dovetail_transforms.regions.regions import placed_backend

    from dovetail_placement.forming import formed_regions

    former_of = {backend.name: backend.regions or DEFAULT_FORMER for backend in ctx.backends}
    former_of.setdefault(ctx.host.name, ctx.host.regions or DEFAULT_FORMER)
    # Waves go around the regions of other formers, so they come last.
    ordered = sorted(former_of, key=lambda name: former_of[name] == DEFAULT_FORMER)
    formers = {name: former_of[name] for name in ordered}
    chosen = {backend.name: backend for backend in (*ctx.backends, ctx.host)}
    return formed_regions(model.graph, formers, ctx.registry, placed_backend, chosen, ctx.request)


def _floats_cross(ctx: Context) -> dict[str, tuple[bool, bool]]:
    """For each backend that says so, whether floats enter and leave its regions where it computes in integers."""
    borders = {backend.name: backend.border for backend in ctx.backends}
    ends = {name: (border.into, border.out) for name, border in borders.items() if border is not None}
    return {name: (into == "inside", out == "inside") for name, (into, out) in ends.items()}
