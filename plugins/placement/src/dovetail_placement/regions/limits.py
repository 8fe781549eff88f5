"""Limits on regions as a whole: on their size, content and number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph
from dovetail.planning import Region, operator_name
from dovetail.text import pluralize

from dovetail_placement.legality import Judges
from dovetail_placement.place import claim_on
from dovetail_placement.regions.form_regions import regions_of
from dovetail_placement.regions.splitting import counts_of
from dovetail_placement.regions.work import work_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Refusal
    from dovetail.plugin import Backend


def refuse_regions(model: Model, ctx: Context) -> None:
    """Reject the nodes of regions that their backends do not accept; runs before conversions are inserted.

    Called before types are chosen and, because sizes of weights depend on these, again for backends that limit them.
    """
    asked = {backend.name: backend for backend in ctx.backends if backend.limits_regions}
    if not asked:
        return
    flat = ctx.analysis(FlatGraph, model)
    kept: dict[str, list[Region]] = {}
    for region in regions_of(model, ctx):
        if region.backend not in asked:
            continue
        reasons = _judged(region, asked[region.backend], flat)
        if not reasons:
            kept.setdefault(region.backend, []).append(region)
            continue
        only = _only_here(region, ctx, model)
        if only is None:
            _refuse(region, reasons, ctx)
        else:
            why = f"it stays on {region.backend}, which alone runs it: {'; '.join(reason.text for reason in reasons)}"
            ctx.remark("analysis", only, "region", why, source=reasons[0].source)
    for name, regions in kept.items():
        _refuse_surplus(regions, asked[name], model, ctx)


def _refuse_surplus(regions: Sequence[Region], backend: Backend, model: Model, ctx: Context) -> None:
    """Reject the regions with the least work until no more are left than the backend accepts.

    Regions that nothing else runs stay. Regions with pinned nodes go last: rejecting them is an error that names a pin.
    """
    most, source = backend.region_count
    if not most or len(regions) <= most:
        return
    flat = ctx.analysis(FlatGraph, model)
    work = {region.index: work_of(region.nodes, flat) for region in regions}
    order = sorted(regions, key=lambda region: (_is_pinned(region), work[region.index], -region.index))
    surplus = len(regions) - most
    for region in order:
        if not surplus:
            return
        if (only := _only_here(region, ctx, model)) is not None:
            why = f"it stays on {backend.name}, which alone runs it, and takes {pluralize(most, 'region')}"
            ctx.remark("analysis", only, "region-count", why, source=source)
            continue
        surplus -= 1
        why = (
            f"the region {_extent(region)} is one of {len(regions)}, and {backend.name} takes "
            f"{pluralize(most, 'region')}, those with the most work; this one has {work[region.index]}"
        )
        for node in region.nodes:
            ctx.refuse(node, backend.name, why, rule="region-count", source=source)


def _is_pinned(region: Region) -> bool:
    return any(claim is not None and claim.pinned for claim in map(claim_on, region.nodes))


def _only_here(region: Region, ctx: Context, model: Model) -> ir.Node | None:
    """Return a node of a region that neither a following backend nor the host supports; None if there is none."""
    others = ctx.analysis(Judges, model).following(region.backend)
    return next((node for node in region.nodes if all(judge(node).ok is False for judge in others)), None)


def _refuse(region: Region, reasons: tuple[Refusal, ...], ctx: Context) -> None:
    why = f"it does not take the region {_extent(region)}: {'; '.join(reason.text for reason in reasons)}"
    for node in region.nodes:
        ctx.refuse(node, region.backend, why, rule="region", source=reasons[0].source)


def _extent(region: Region) -> str:
    first, last = region.nodes[0], region.nodes[-1]
    return f"from '{first.name}' to '{last.name}'" if first is not last else f"of '{first.name}'"


def _judged(region: Region, backend: Backend, flat: FlatGraph) -> tuple[Refusal, ...]:
    nodes = (part for node in region.nodes for part in (node, *flat.body_nodes(node)))
    operators = {operator_name(node.domain, node.op_type) for node in nodes}
    return tuple(backend.region_refusals(counts_of(region, flat), operators))
