"""The `form-regions` pass: the regions of a placed model, as partitioned and within their limits, numbered."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph
from dovetail.passes import Pass
from dovetail.planning import (
    PART,
    Placement,
    Region,
    decided_key,
    get_placement,
    identity,
    placed_backend,
    set_placement,
    walk,
)

from dovetail_placement.conversions import place_later_nodes
from dovetail_placement.regions.conversions import copy_conversions, settled_regions
from dovetail_placement.regions.partitioners import formed_regions
from dovetail_placement.regions.splitting import split_regions

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Plan


DEFAULT_PARTITIONER = "topological"
"""The partitioner of backends that name none."""


class FormRegions(Pass):
    """Number the regions: maximal convex sets of nodes of one backend, in topological order.

    Given:  every node has a backend
    Result: every node has the number of its region; nodes of bodies share that of their control-flow node.
    """

    name = "form-regions"
    stage = "outline"

    def run(self, model: Model, ctx: Context) -> bool:
        """Annotate all nodes, including those added after placement.

        The graph changes only where several regions read one conversion: each gets its own copy.
        """
        place_later_nodes(model, ctx)
        copied, formed = False, _formed(model, ctx)
        while copy_conversions(model, formed, _floats_cross(ctx), ctx):
            copied, formed = True, _formed(model, ctx)
        number_regions(model, ctx, formed)
        if ctx.outcome.plan is not None:
            _tell(ctx.outcome.plan, model)
        return copied


def number_regions(model: Model, ctx: Context, formed: list[Region] | None = None) -> None:
    """Number the regions of `model`. Runs twice: for the plan before casts are inserted, and again afterwards.

    Args:
        model: A placed model.
        ctx: The context of the run.
        formed: The regions as partitioned; None to ask the partitioners.
    """
    flat = ctx.analysis(FlatGraph, model)
    regions = _within_limits(model, _formed(model, ctx) if formed is None else formed, ctx)
    for region in regions:
        # Nodes that share a placement object keep sharing one. Ids stay valid: the placements outlive this loop.
        moved: dict[int, Placement] = {}
        bodies = (part for node in region.nodes for part in flat.body_nodes(node)) if flat.holders else ()
        for part in chain(region.nodes, bodies):
            before = get_placement(part)
            assert before is not None
            after = moved.get(id(before)) or moved.setdefault(id(before), replace(before, region=region.index))
            set_placement(part, after)
    ctx.count("regions", len(regions))


def _tell(plan: Plan, model: Model) -> None:
    """Give the nodes of the plan the numbers of their regions, which conversions have changed by now."""
    found = {}
    for path, node in walk(model):
        placement = get_placement(node)
        if decided_key(node) and PART not in node.metadata_props and placement is not None:
            found[identity(path, node)] = placement.region
    for index, planned in enumerate(plan.nodes):
        region = found.get(planned.output, planned.region)
        if region != planned.region:
            plan.nodes[index] = replace(planned, region=region)
    plan.summary["regions"] = len({node.region for node in plan.nodes} - {None})


def regions_of(model: Model, ctx: Context) -> list[Region]:
    """Return the regions of a placed model, formed by the backends' partitioners, within their size limits.

    Raises:
        DovetailError: A partitioner is not installed, or violates its contract.
    """
    return _within_limits(model, _formed(model, ctx), ctx)


def _within_limits(model: Model, formed: list[Region], ctx: Context) -> list[Region]:
    """Return the regions with conversions where they belong, split where they exceed a limit of their backend."""
    regions = settled_regions(model.graph, formed, _floats_cross(ctx))
    maxima = {backend.name: backend.region_maxima for backend in ctx.backends}
    return split_regions(model.graph, regions, maxima, ctx.analysis(FlatGraph, model))


def _formed(model: Model, ctx: Context) -> list[Region]:
    """Return the regions as partitioned, before limits apply."""

    partitioner_of = {backend.name: backend.regions or DEFAULT_PARTITIONER for backend in ctx.backends}
    partitioner_of.setdefault(ctx.host.name, ctx.host.regions or DEFAULT_PARTITIONER)
    # The default partitioner handles the remaining nodes, so it comes last.
    ordered = sorted(partitioner_of, key=lambda name: partitioner_of[name] == DEFAULT_PARTITIONER)
    partitioners = {name: partitioner_of[name] for name in ordered}
    chosen = {backend.name: backend for backend in (*ctx.backends, ctx.host)}
    return formed_regions(model.graph, partitioners, ctx.registry, placed_backend, chosen, ctx.request)


def _floats_cross(ctx: Context) -> dict[str, tuple[bool, bool]]:
    """Return, per backend with a `border` setting, whether floats enter and leave regions that compute in integers."""
    borders = {backend.name: backend.border for backend in ctx.backends}
    ends = {name: (border.into, border.out) for name, border in borders.items() if border is not None}
    return {name: (into == "inside", out == "inside") for name, (into, out) in ends.items()}
