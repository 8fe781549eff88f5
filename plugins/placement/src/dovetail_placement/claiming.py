"""Claiming: pins first, then the strategy of each backend on the remaining nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, PinError
from dovetail.ir import FlatGraph
from dovetail.planning import claim_of, from_source, key_of
from dovetail_transforms.decompositions import is_known

from dovetail_placement.claim_checks import ask_for_claims, check_claims
from dovetail_placement.node_requests import NodeRequests
from dovetail_placement.pins import pinned_claim
from dovetail_placement.regions.partitioners import keys_of_partitioner
from dovetail_placement.view import BackendView, made_strategy

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Claim, Edit
    from dovetail.plugin import Backend, Strategy

    from dovetail_placement.legality import Judges
    from dovetail_placement.pins import Pin, Pins


class Claiming:
    """The claims of one round.

    Args:
        model: The model.
        ctx: The context of the run.
        judges: The judges of the backends.
        pins: Manual placements, which are claimed first.
        refused: The reason for each earlier rejection, by backend and the node's `id`.

    Attributes:
        claimed: Backend and claim of every claimed node, by its `id`.
        pins: Manual placements.
        edits: The edits that strategies request.
        flat: The nodes of the model.
        declined: Pins that their backends declined, with the reasons.

    Raises:
        DovetailError: A pin requires something that its backend rejects.
    """

    def __init__(
        self, model: Model, ctx: Context, judges: Judges, pins: Pins, refused: Mapping[str, Mapping[int, str]]
    ):
        self.model, self.ctx, self.judges, self.pins = model, ctx, judges, pins
        self.flat = ctx.analysis(FlatGraph, model)
        self.claimed: dict[int, tuple[str, Claim]] = {}
        self.edits: list[Edit] = []
        self.declined: list[tuple[Pin, str]] = []
        self._refused = refused
        # Nodes that a backend lost in this round are not offered to it again.
        self._lost: dict[str, set[int]] = {name: set(nodes) for name, nodes in refused.items()}
        self._views: dict[str, BackendView] = {}
        self._claim_pinned()

    def claim(self, backend: Backend) -> None:
        """Let the strategy of a backend claim from the remaining nodes.

        Raises:
            DovetailError: The strategy fails, or makes invalid claims.
        """
        host = backend is self.ctx.host
        if not host and self.left_out(backend):
            return
        strategy, title = self.strategy_of(backend)
        view = self.view_of(backend)
        answer = ask_for_claims(strategy, view, backend, title)
        check_claims(answer.claims, self.flat, view, title, whole=not host)
        for claim in answer.claims:
            self.enter(backend.name, claim)
        self.edits += answer.edits

    def enter(self, backend: str, claim: Claim) -> None:
        """Record a claim, without formats rejected in earlier rounds."""
        refused = self.ctx.refusals.formats(backend)
        if refused:
            key = key_of(claim.node)
            ports = {
                port: tuple(kind for kind in formats if (key, str(kind)) not in refused)
                for port, formats in claim.ports.items()
            }
            if ports != claim.ports:
                claim = replace(claim, ports=ports)
        self.claimed[id(claim.node)] = (backend, claim)

    def withdraw(self, node: ir.Node, backend: str) -> None:
        """Take `node`, with all nodes of its bodies, away from a backend for the rest of this round."""
        outermost = self.flat.outermost(node)
        for part in (outermost, *self.flat.body_nodes(outermost)):
            self.claimed.pop(id(part), None)
            self._lost[backend].add(id(part))

    def decline(self, pin: Pin, why: str) -> None:
        """Drop a pin that its backend rejects, and record it; the node is placed as if unpinned.

        Raises:
            DovetailError: The pin must not be declined.
        """
        if not pin.request.may_be_declined:
            raise pin_refused(pin, why)
        outermost = self.flat.outermost(pin.node)
        for member in (outermost, *self.flat.body_nodes(outermost)):
            self.pins.drop(member)
            self.claimed.pop(id(member), None)
        self.declined.append((pin, why))

    def strategy_of(self, backend: Backend) -> tuple[Strategy, str]:
        """Return the strategy of a backend, with its name for messages.

        Raises:
            DovetailError: Neither the backend nor the request names one, or it is not installed.
        """
        name, table = self.ctx.strategy_of(backend), self.ctx.registry.strategy
        if not name:
            raise DovetailError(
                f"backend '{backend.name}' names no strategy, so nothing claims nodes for it",
                f"write `place: {{strategy: NAME}}` into its file, or --backend {backend.name}:strategy=NAME; "
                f"installed: {', '.join(table)}",
            )
        title = f"{table.title(name)}, for {backend.name},"
        return made_strategy(table[name], backend, name, title, keys_of_partitioner(backend, self.ctx.registry)), title

    def view_of(self, backend: Backend) -> BackendView:
        """Return the view for the strategy of a backend; it always shows the current claims."""
        if backend.name not in self._views:
            lost = self._lost.setdefault(backend.name, set())
            if backend.has_integers:
                lost.update(self._asked_in_floats(backend))
            self._views[backend.name] = BackendView(
                self.model, self.ctx, backend, self.judges.of(backend), self.claimed, lost
            )
        return self._views[backend.name]

    def view_before(self, backend: Backend) -> BackendView:
        """Return a view with the claims of pins and of the backends named before `backend` alone, as it began with."""
        names = [one.name for one in self.ctx.backends]
        later = set(names[names.index(backend.name) :])
        claimed = {key: one for key, one in self.claimed.items() if one[0] not in later or one[1].pinned}
        own = self.view_of(backend)
        return BackendView(self.model, self.ctx, backend, self.judges.of(backend), claimed, own.lost)

    def _asked_in_floats(self, backend: Backend) -> Iterator[int]:
        """Yield the `id` of all nodes, with their bodies, that a backend with integers leaves to the following ones."""
        requests = self.ctx.analysis(NodeRequests, self.model)
        for request in requests.in_floats():
            for node in requests.nodes_of(request):
                why = f"left to the following backends, in floats, as {request} asks"
                self.ctx.remark("missed", node, "goal", why, backend=backend.name)
                yield id(node)
                yield from map(id, self.flat.body_nodes(node))

    def left_out(self, backend: Backend) -> str:
        """Return why a backend gets no node but pinned ones, whatever its strategy says; empty if it may get some."""
        given_up = self.ctx.refusals.given_up(backend.name)
        if given_up is not None:
            return given_up.why
        low, high = backend.opset
        # Whether newer nodes can be converted to its opset is decided node by node; see `Judges`.
        older = low > self.model.opset
        return f"its tools read opset {low} to {high}, the model has {self.model.opset}" if older else ""

    def way_in(self, backend: Backend) -> str:
        """Return what the user can do about a backend that is left out; empty if nothing."""
        low, high = backend.opset
        return f"export the model with an opset from {low} to {high}" if low > self.model.opset else ""

    def _claim_pinned(self) -> None:
        backends = {backend.name: backend for backend in (*self.ctx.backends, self.ctx.host)}
        for pin in self.pins:
            if self.pins.of(pin.node) is not pin:
                continue  # declined with another node of the same control flow
            request = pin.request
            backend = backends[request.backend]
            verdict = self.view_of(backend).verdict(pin.node)
            if backend.asks_region:
                # Whether it is the last of its region is known once all backends have claimed; see
                # `settle_region_ends`.
                as_last = self.judges.of(backend)(pin.node, {"last": True})
                if as_last.ok is not False:
                    # Until then, keep the rules that hold in the middle of a region.
                    verdict = replace(as_last, rules={**as_last.rules, **verdict.rules})
            why = "; ".join(reason.text for reason in verdict.reasons) if verdict.ok is False else ""
            why = why or self._refused.get(request.backend, {}).get(id(pin.node), "")
            if why:
                self.decline(pin, why)
                continue
            self.claimed[id(pin.node)] = (request.backend, pinned_claim(claim_of(pin.node, verdict), pin))
            self.ctx.remark("passed", pin.node, "pinned", f"on {request.backend}, as {request} says")


def pin_refused(pin: Pin, why: str) -> PinError:
    """Return the error for a pin that its backend rejects."""
    backend, written_out = pin.request.backend, f"--edit write-out={pin.node.name}"
    other = f", or write it in operators that this one may take: {written_out}" if is_known(pin.node) else ""
    return PinError(
        f"{pin.request}: {backend} refuses '{pin.node.name}'{from_source(pin.node)}: {why}",
        f"choose another backend for it{other}",
        backend,
        why,
    )
