"""Legal last nodes of regions: verdicts that depend on the readers of a node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.planning import facts_of

from dovetail_placement.claiming import pin_refused

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format
    from dovetail.planning import Claim, Verdict

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
