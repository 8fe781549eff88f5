"""Guards of regions: limits of a backend on the nodes, inputs, outputs and operators of a whole region.

Regions exist only after placement, so they are checked then. The nodes of a refused region go to the next backend, and
the regions that remain are checked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.flat_graph import FlatGraph
from dovetail.planning.identity import operator_name
from dovetail_transforms.regions.regions import Region, used_values

from dovetail_placement.form_regions import regions_of
from dovetail_placement.judges import Judges

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.verdict import Refusal
    from dovetail.plugin.backend import Backend


def refuse_regions(model: Model, ctx: Context) -> None:
    """Refuse the nodes of regions that their backends do not take; conversions are not inserted yet."""
    asked = {backend.name: backend for backend in ctx.backends if backend.limits_regions}
    if not asked:
        return
    flat = ctx.analysis(FlatGraph, model)
    for region in regions_of(model, ctx):
        reasons = _judged(region, asked[region.backend], flat) if region.backend in asked else ()
        if not reasons:
            continue
        only = _only_here(region, ctx, model)
        if only is None:
            _refuse(region, reasons, ctx)
        else:
            why = f"it stays on {region.backend}, which alone runs it: {'; '.join(reason.text for reason in reasons)}"
            ctx.remark("analysis", only, "region", why, source=reasons[0].source)


def _only_here(region: Region, ctx: Context, model: Model) -> ir.Node | None:
    """Return a node of a region that no backend behind its own runs, nor the host; None if there is none."""
    others = ctx.analysis(Judges, model).behind(region.backend)
    return next((node for node in region.nodes if all(judge(node).ok is False for judge in others)), None)


def _refuse(region: Region, reasons: tuple[Refusal, ...], ctx: Context) -> None:
    first, last = region.nodes[0], region.nodes[-1]
    which = f"from '{first.name}' to '{last.name}'" if first is not last else f"of '{first.name}'"
    why = f"it does not take the region {which}: {'; '.join(reason.text for reason in reasons)}"
    for node in region.nodes:
        ctx.refuse(node, region.backend, why, rule="region", source=reasons[0].source)


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
