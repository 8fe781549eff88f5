"""The `place` pass: assign every node to a backend."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.flat_graph import FlatGraph
from dovetail.passes import Pass
from dovetail.planning.placement import Placement, set_placement
from dovetail.suggestions import near_misses

from dovetail_placement.claim_checks import ask_for_claims, check_claims, check_place_keys
from dovetail_placement.judges import Judges
from dovetail_placement.pins import Pin, pinned_claim, pins_of_bodies, planned_pins, resolve_pins
from dovetail_placement.strategies.autocast import claim_of
from dovetail_placement.view import View

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.claim import Claim
    from dovetail.plugin.protocols import Backend

__all__ = ["Place", "Placer", "claims_of"]

_CLAIM = "dovetail.claim"
_UNFIT_SHOWN = 20


@dataclass(frozen=True)
class Place(Pass):
    """Let each backend claim nodes, in the user's order; the host takes the rest.

    Given:  nodes annotated with their kind
    Result: every node has a backend and the claim that placed it; each node that a backend refused has a remark with
            the limit it violates.
    """

    name = "place"
    stage = "place"
    after = ("edge-kinds",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Annotate; the graph does not change."""
        placer = Placer(model, ctx)
        placer.remark_refusals()
        placer.remark_unfit()
        placer.place()
        return False


def claims_of(node: ir.Node) -> Claim | None:
    """Return the claim that placed `node`; None for nodes that nothing claimed."""
    return node.meta.data.get(_CLAIM)


class Placer:
    """Places the nodes of one model; typing may ban nodes from backends and place again."""

    def __init__(self, model: Model, ctx: Context):
        self.model = model
        self.ctx = ctx
        self.flat = ctx.analysis(FlatGraph, model)
        self.host = ctx.host
        names = [backend.name for backend in ctx.backends]
        plan = ctx.request.plan
        self.pins, self.unfit = ({}, []) if plan is None else planned_pins(model, plan, names)
        self.pins |= resolve_pins(model, ctx.request.pins, names)
        self.pins |= pins_of_bodies(model, self.pins)
        self.banned: dict[str, set[int]] = {
            backend.name: {id(node) for node, _ in self._refused(backend.name)} for backend in ctx.backends
        }
        self._reasons: dict[tuple[str, int], str] = {}
        self._judges = Judges(model, ctx)

    def ban(self, node: ir.Node, backend: str, why: str) -> None:
        """Exclude `node` from `backend`, together with the control-flow node that contains it.

        One backend runs a control-flow node with its bodies, so one unsupported node excludes all of it.

        Args:
            node: The node.
            backend: Name of the backend.
            why: The reason, for the message to somebody who pinned it there.
        """
        outermost = self.flat.outermost(node)
        for part in (outermost, *self.flat.body_nodes(outermost)):
            self.banned[backend].add(id(part))
            self._reasons[backend, id(part)] = why

    def remark_refusals(self) -> None:
        """Remark nodes that are not on a backend because its engine refused them in an earlier round."""
        for backend in self.ctx.backends:
            for node, why in self._refused(backend.name):
                self.ctx.remark("failed", node, "engine-refused", f"not on {backend.name}: {why}")

    def remark_unfit(self) -> None:
        """Remark the entries of a replayed plan that match no node of the model."""
        for unfit in self.unfit[:_UNFIT_SHOWN]:
            self.ctx.remark("missed", "", "plan-entry", str(unfit))
        if len(self.unfit) > _UNFIT_SHOWN:
            why = f"{len(self.unfit)} entries of the plan fit no node of this model; {_UNFIT_SHOWN} are named here"
            self.ctx.remark("missed", "", "plan-entry", why)

    def _refused(self, backend: str) -> list[tuple[ir.Node, str]]:
        refused = self.ctx.refusals.get(backend)
        return [(node, refused[node.name]) for node in self.model.graph if node.name in refused] if refused else []

    def place(self) -> None:
        """Place every node.

        Raises:
            DovetailError: No backend runs a node, or a pin requires what its backend refuses.
        """
        claimed: dict[int, tuple[str, Claim]] = {}
        self._claim_pinned(claimed)
        for backend in self.ctx.backends:
            hidden = set(claimed) | self.banned[backend.name]
            self._claim(backend, hidden, claimed)
        self._claim(self.host, set(claimed), claimed)
        self._check_all_placed(claimed)
        sizes = Counter(name for name, _ in claimed.values())
        placements = {name: Placement(name) for name in sizes}
        for node in self.flat.nodes:
            backend, claim = claimed[id(node)]
            set_placement(node, placements[backend])
            node.meta[_CLAIM] = claim
        for name, size in sizes.items():
            self.ctx.count(name, size)

    def _claim(self, backend: Backend, hidden: set[int], claimed: dict) -> None:
        if backend is not self.host and not self._reads_opset(backend):
            return
        wanted = self.ctx.request.strategy if backend is not self.host else None
        name = wanted or backend.strategy
        strategy = self.ctx.registry.strategy[name]()
        if not wanted:
            check_place_keys(backend, strategy, name)
        view = View(self.model, self.ctx, backend, self._judges.of(backend), hidden)
        owner = self.ctx.registry.strategy.entry(name).owner
        who = f"strategy '{name}' of {owner}, for {backend.name},"
        claims = ask_for_claims(strategy, view, backend, who).claims
        check_claims(claims, self.flat, hidden, who, whole=backend is not self.host)
        for claim in claims:
            if id(claim.node) in self.pins:
                claim = pinned_claim(claim, self.pins[id(claim.node)])
            claimed.setdefault(id(claim.node), (backend.name, claim))

    def _reads_opset(self, backend: Backend) -> bool:
        low, high = backend.opset
        if low <= self.model.opset <= high:
            return True
        why = f"not on {backend.name}: its tools read opset {low} to {high}, the model has {self.model.opset}"
        suggest = f"export the model with an opset from {low} to {high}"
        self.ctx.remark("missed", "", "opset", why, suggest=suggest, source=backend.source)
        return False

    def _claim_pinned(self, claimed: dict) -> None:
        backends = {backend.name: backend for backend in (*self.ctx.backends, self.host)}
        for pin in self.pins.values():
            judge = self._judges.of(backends[pin.backend])
            verdict = judge(pin.node)
            if not verdict.ok:
                raise _pin_refused(pin, "; ".join(reason.text for reason in verdict.reasons))
            if id(pin.node) in self.banned.get(pin.backend, ()):
                by_engine = self.ctx.refusals.get(pin.backend, {}).get(pin.node.name, "")
                raise _pin_refused(pin, by_engine or self._reasons.get((pin.backend, id(pin.node)), "it was banned"))
            claimed[id(pin.node)] = (pin.backend, pinned_claim(claim_of(pin.node, verdict), pin))
            self.ctx.remark("passed", pin.node, "pinned", f"on {pin.backend}, as {pin.text} says")

    def _check_all_placed(self, claimed: dict) -> None:
        lost = next((node for node in self.flat.nodes if id(node) not in claimed), None)
        if lost is None:
            return
        verdict = self._judges.of(self.host)(lost)
        operator = f"{lost.domain}::{lost.op_type}" if lost.domain not in ("", "ai.onnx") else lost.op_type
        why = "; ".join(reason.text for reason in verdict.reasons) or "no backend file lists it"
        near = _suggest_operator(lost)
        raise DovetailError(
            f"node '{lost.name}': no engine here runs {operator} ({why})",
            near or "install a backend that does, or cut the node out of the model",
        )


def _suggest_operator(node: ir.Node) -> str:
    """Suggest an operator for an unknown name of the default domain; empty for other domains."""
    import onnx

    if node.domain not in ("", "ai.onnx"):
        return ""
    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    near = near_misses(node.op_type, known, 1)
    return f"ONNX has no such operator; did you mean '{near[0]}'?" if near and node.op_type not in known else ""


def _pin_refused(pin: Pin, why: str) -> DovetailError:
    return DovetailError(f"{pin.text}: {pin.backend} refuses '{pin.node.name}': {why}", "choose another backend for it")
