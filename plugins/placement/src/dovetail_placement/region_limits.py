"""Limits on whole regions: legal last nodes, and limits on size and content."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph
from dovetail.planning import facts_of, operator_name
from dovetail_transforms.regions.regions import Region, used_values

from dovetail_placement.claiming import pin_refused
from dovetail_placement.form_regions import regions_of
from dovetail_placement.legality import Judges

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format, Model
    from dovetail.passes import Context
    from dovetail.planning import Claim, Refusal, Verdict
    from dovetail.plugin import Backend

    from dovetail_placement.claiming import Claiming
    from dovetail_placement.pins import Pin


def settle_region_ends(claiming: Claiming) -> None:
    """Judge nodes again whose verdict depends on being the last of their region on its backend.

    Users are visited first, because losing one may make its producer the last node. A type that is allowed only at the
    end is added to the claim, unless a pin or the strategy settled that port (`Claim.settled`).
    """
    asked = {backend.name: backend for backend in claiming.ctx.backends if backend.asks_region}
    if not asked:
        return
    lost: dict[str, None] = {}
    for node in reversed(claiming.model.graph):
        name, claim = claiming.claimed.get(id(node), ("", None))
        if name not in asked or claim is None:
            continue
        readers = [reader for value in node.outputs for reader, _ in value.uses()]
        here = [reader for reader in readers if _backend_of(reader, claiming) == name]
        # A dequantized value leaves the integer part of the region, but not the region.
        last = not (any(_in_integers(reader, claiming) for reader in here) if _quantized(claim) else here)
        view = claiming.view_of(asked[name])
        verdict = claiming.judges.of(asked[name])(node, {"last": last})
        pin = claiming.pins.of(node)
        if pin is not None:
            _check_pinned(pin, claim, verdict, claiming)
        if verdict.ok is False:
            reasons = verdict.reasons
            why, source = "; ".join(reason.text for reason in reasons), reasons[0].source if reasons else ""
            claiming.ctx.remark(
                "missed", node, "region-end", why, source=source, backend=name, facts=facts_of(reasons)
            )  # fmt: skip
            claiming.withdraw(node, name)
            lost[name] = None
        elif verdict.types != claim.ports:
            claiming.enter(name, _widened(claim, view.verdict(node), verdict))
    names = [backend.name for backend in claiming.ctx.backends]
    for name in lost:
        for later in claiming.ctx.backends[names.index(name) + 1 :]:
            claiming.claim(later)


def _backend_of(reader: ir.Node, claiming: Claiming) -> str:
    return claiming.claimed.get(id(claiming.flat.outermost(reader)), ("",))[0]


def _in_integers(reader: ir.Node, claiming: Claiming) -> bool:
    """Check whether a node may compute in integers; assumed for a node without known formats."""
    claim = claiming.claimed.get(id(claiming.flat.outermost(reader)), ("", None))[1]
    return claim is None or not claim.ports or _quantized(claim)


def _quantized(claim: Claim) -> bool:
    return any(kind.quantized for kinds in claim.ports.values() for kind in kinds)


def _widened(claim: Claim, before: Verdict, after: Verdict) -> Claim:
    """Return the claim with the types of `after`, except for types of `before` that the strategy left out."""

    def offered(port: str, kinds: tuple[Format, ...]) -> tuple[Format, ...]:
        known = before.types.get(port)
        if port in claim.settled or port not in after.types or known is None:
            return kinds
        return tuple(kind for kind in after.types[port] if kind in kinds or kind not in known)

    ports = {port: offered(port, kinds) for port, kinds in claim.ports.items()}
    return replace(claim, ports=ports, rules={**claim.rules, **after.rules})


def _check_pinned(pin: Pin, claim: Claim, verdict: Verdict, claiming: Claiming) -> None:
    """Reject or decline a pin that contradicts the verdict at its position, last or not, in the region."""
    if verdict.ok is False:
        claiming.decline(pin, "; ".join(reason.text for reason in verdict.reasons))
        return
    for port, formats in claim.ports.items():
        offered = verdict.types.get(port, formats)
        if not set(formats) & set(offered):
            text, others = " or ".join(map(str, formats)), ", ".join(map(str, offered))
            raise pin_refused(pin, f"{port} cannot be {text}, because of what reads it; allowed: {others}")


def refuse_regions(model: Model, ctx: Context) -> None:
    """Reject the nodes of regions that their backends do not accept; runs before conversions are inserted."""
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
    """Return a node of a region that neither a following backend nor the host supports; None if there is none."""
    others = ctx.analysis(Judges, model).following(region.backend)
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
