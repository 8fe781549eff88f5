"""Limits and types that depend on `region.last`: whether no reader of a node is on the same backend."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.planning.verdict import facts_of

from dovetail_placement.claiming import pin_refused

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format
    from dovetail.planning.claim import Claim
    from dovetail.planning.verdict import Verdict

    from dovetail_placement.claiming import Claiming
    from dovetail_placement.pins import Pin


def settle_region_ends(claiming: Claiming) -> None:
    """Judge nodes again whose verdict depends on whether they are the last of their region on its backend.

    Readers come first, because a reader that is lost makes its producer the last one. A type that a node may only have
    there is added to its claim, unless a pin or the strategy has settled that port (`Claim.settled`).
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
        # Where integers become floats, they leave the integers of the region, though not the region.
        last = not (any(_in_integers(reader, claiming) for reader in here) if _quantised(claim) else here)
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
    """Whether a node may compute in integers; of one without known formats, that is assumed."""
    claim = claiming.claimed.get(id(claiming.flat.outermost(reader)), ("", None))[1]
    return claim is None or not claim.ports or _quantised(claim)


def _quantised(claim: Claim) -> bool:
    return any(kind.quantised for kinds in claim.ports.values() for kind in kinds)


def _widened(claim: Claim, before: Verdict, after: Verdict) -> Claim:
    """The claim with the types of `after`, without those of `before` that the strategy left out."""

    def offered(port: str, kinds: tuple[Format, ...]) -> tuple[Format, ...]:
        known = before.types.get(port)
        if port in claim.settled or port not in after.types or known is None:
            return kinds
        return tuple(kind for kind in after.types[port] if kind in kinds or kind not in known)

    ports = {port: offered(port, kinds) for port, kinds in claim.ports.items()}
    return replace(claim, ports=ports, rules={**claim.rules, **after.rules})


def _check_pinned(pin: Pin, claim: Claim, verdict: Verdict, claiming: Claiming) -> None:
    """Refuse or decline a pin to what the node may only be, or have, where it is, or is not, the last of its region."""
    if verdict.ok is False:
        claiming.decline(pin, "; ".join(reason.text for reason in verdict.reasons))
        return
    for port, formats in claim.ports.items():
        offered = verdict.types.get(port, formats)
        if not set(formats) & set(offered):
            text, others = " or ".join(map(str, formats)), ", ".join(map(str, offered))
            raise pin_refused(pin, f"{port} cannot be {text}, because of what reads it; allowed: {others}")
