"""Bit widths of values between nodes on the BPU: eight, unless more are requested and supported throughout."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.planning import NodeRequest
from dovetail.text import pluralize
from dovetail_onnx import Signatures, input_name, output_name

from dovetail_bpu_int8.bpu_requests import BACKEND, MODEL_OUTPUTS, BpuRequests

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format
    from dovetail.planning import Claim, PortRule
    from dovetail.plugin import View


NARROW, WIDE, HALF = "int8", "int16", "float16"
_WIDTHS = frozenset({NARROW, WIDE, HALF})
_NAMED = 6  # nodes in a note
_OUTPUT = NodeRequest(
    "precision", "", "the vendor's rule for outputs of the model", BACKEND, precision=WIDE, ports=MODEL_OUTPUTS
)


def settle_widths(view: View, claims: Sequence[Claim], outputs: Container[ir.Node] = ()) -> list[Claim]:
    """Narrow every port of the claims to one width.

    A value has one width at its producer and at all of its consumers on the backend. Ports of a node that share a
    format tie their values together. A group of tied values is in int16 if that is requested for one of its ports and
    supported by all; otherwise it is in int8, and remarks name the ports without support. A node is in float16 if that
    is requested and all of its ports support it; its neighbors are not affected.

    Source: the vendor's toolchain widens neighbors, too, and falls back to int8 if they do not support it.

    Args:
        view: The view of the strategy.
        claims: Its claims; nodes pinned to formats are included, and not changed.
        outputs: Nodes whose model outputs are in int16 by default.
    """
    requests = view.analysis(BpuRequests)
    for lost in requests.lost:
        why = f"{lost.asked_by}: '{lost.selector}' is gone, because preparing the model folded or removed it"
        view.remark("analysis", "", "request-lost", why)
    pinned = _pinned(view)
    wanted = requests.formats or any(claim.node in outputs for claim in claims)
    if not wanted and not any(_only(formats, WIDE) for one in pinned for formats in one.ports.values()):
        return _Narrowing().of_all(claims)
    return _Widths(view, claims, pinned, requests, outputs=outputs).settled()


def settle_pinned(view: View, claims: Sequence[Claim]) -> list[Claim]:
    """Narrow the ports that pins leave open, to the widths of the values that they share.

    Args:
        view: The view of the strategy.
        claims: All claims for its backend, with unpinned ones as returned by `settle_widths`.
    """
    if not any(claim.pinned and any(map(_open, claim.ports.values())) for claim in claims):
        return list(claims)
    return _Widths(view, claims, (), view.analysis(BpuRequests), quiet=True).settled()


def _open(formats: Iterable[Format]) -> bool:
    return len({one.element for one in formats} & _WIDTHS) > 1


def _pinned(view: View) -> list[Claim]:
    found = map(view.claimed, view.model.graph)
    return [one[1] for one in found if one is not None and one[0] == view.backend.name]


def _has(formats: Iterable[Format], width: str) -> bool:
    return any(one.element == width for one in formats)


def _only(formats: Sequence[Format], width: str) -> bool:
    return bool(formats) and all(one.element == width for one in formats)


class _Narrowing:
    """Narrows the ports of claims; claims that share ports still share them afterwards."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[object, Mapping[str, tuple[Format, ...]]]] = {}

    def of_all(self, claims: Iterable[Claim]) -> list[Claim]:
        """Narrow all claims to int8."""
        return [self.of(claim, {}, NARROW) for claim in claims]

    def of(self, claim: Claim, widths: Mapping[str, str], width: str) -> Claim:
        """Narrow some ports of a claim to given widths, and the others to `width`."""
        chosen = ",".join(f"{port}={widths[port]}" for port in sorted(widths))
        key = (id(claim.ports), f"{width};{chosen}")
        if key not in self._known:
            # The ports are stored with the answer, so that their id is not reused.
            ports = claim.ports.items()
            self._known[key] = claim.ports, {port: _narrowed(held, widths.get(port, width)) for port, held in ports}
        before, after = self._known[key]
        return claim if after == before else replace(claim, ports=after)


def _narrowed(formats: tuple[Format, ...], width: str) -> tuple[Format, ...]:
    """Narrow the formats of a port to a width; 32-bit sums are kept, and weights of wider products are in int8."""
    same = tuple(one for one in formats if one.element == width or width != HALF and one.element not in _WIDTHS)
    if _has(same, width):
        return same
    return tuple(one for one in formats if one.element != HALF) or formats


@dataclass(eq=False, slots=True)
class _Slot:
    """A port of a node on the backend with an integer value."""

    claim: Claim
    port: str
    value: ir.Value
    is_input: bool
    parent: _Slot | None = None
    request: NodeRequest | None = None

    @property
    def root(self) -> _Slot:
        slot = self
        while slot.parent is not None:
            if slot.parent.parent is not None:
                slot.parent = slot.parent.parent
            slot = slot.parent
        return slot

    def tie(self, other: _Slot) -> None:
        first, second = self.root, other.root
        if first is not second:
            second.parent = first

    def answers(self, request: NodeRequest, index: int) -> bool:
        """Check whether a request for the node applies to this port, its `index`-th input or output."""
        if self.is_input:
            return request.ports in ("all", f"in{index}") or request.ports == "in"
        of_model = request.ports == MODEL_OUTPUTS and self.value.is_graph_output()
        return request.ports in ("all", "out", f"out{index}") or of_model


class _Widths:
    """Decides the widths of one model."""

    def __init__(
        self,
        view: View,
        claims: Sequence[Claim],
        pinned: Sequence[Claim],
        requests: BpuRequests,
        quiet: bool = False,
        outputs: Container[ir.Node] = (),
    ):
        self._outputs = outputs
        self._view, self._claims, self._requests, self._quiet = view, claims, requests, quiet
        self._signatures = Signatures(view.model.ir.opset_imports)
        self._narrowing = _Narrowing()
        self._back: dict[str | None, None] = {}
        self._halves = {id(claim.node) for claim in claims if self._is_half(claim)}
        self._slots: dict[int, list[_Slot]] = {}
        self._tie([*pinned, *claims])
        self._wide: dict[_Slot, _Slot] = {}
        self._blocked: dict[_Slot, _Slot] = {}
        self._decide()

    def settled(self) -> list[Claim]:
        """Return the narrowed claims, with a remark for every request."""
        done = [self._settle(claim) for claim in self._claims]
        if self._back:
            names = ", ".join(f"'{name}'" for name in list(self._back)[:_NAMED])
            more = ", ..." if len(self._back) > _NAMED else ""
            why = f"{pluralize(len(self._back), 'node')} cannot have the width that is asked for: {names}{more}"
            self._view.remark("analysis", "", "width-fallback", why, suggest="`dovetail explain OUT NODE` says why")
        return done

    def _is_half(self, claim: Claim) -> bool:
        requests = self._requests.formats.get(claim.node, ())
        if not requests or requests[-1].precision != HALF:
            return False
        lacking = [port for port, formats in claim.ports.items() if formats and not _has(formats, HALF)]
        if not lacking:
            return True
        if self._speaks_of(claim):
            self._fall_back(claim, requests[-1], f"{', '.join(sorted(lacking))} cannot be {HALF}")
        return False

    def _tie(self, claims: Iterable[Claim]) -> None:
        """Create the slots, and tie slots that must have the same width."""
        by_value: dict[int, _Slot] = {}
        for claim in claims:
            if id(claim.node) in self._halves:
                continue
            slots = self._slots[id(claim.node)] = self._slots_of(claim)
            tied: _Slot | None = None
            for slot in slots:
                if not _is_constant(slot.value):
                    by_value.setdefault(id(slot.value), slot).tie(slot)
                rule: PortRule | None = claim.rules.get(slot.port)
                if rule is not None and (rule.one_choice or rule.same_scale):
                    if tied is not None:
                        tied.tie(slot)
                    tied = tied or slot

    def _slots_of(self, claim: Claim) -> list[_Slot]:
        """Create the slots of a node, each with its last request."""
        node, signature = claim.node, self._signatures(claim.node)
        ports = [(input_name(at, signature), at, value, True) for at, value in enumerate(node.inputs)]
        ports += [(output_name(at, signature), at, value, False) for at, value in enumerate(node.outputs)]
        requests = self._requests.formats.get(node, ())
        if node in self._outputs:
            requests = [_OUTPUT, *requests]
        slots = []
        for port, index, value, is_input in ports:
            formats = claim.ports.get(port, ())
            if value is None or not any(one.quantized and one.element in _WIDTHS for one in formats):
                continue
            slot = _Slot(claim, port, value, is_input)
            if not (is_input and _is_constant(value)):
                slot.request = next((request for request in reversed(requests) if slot.answers(request, index)), None)
            slots.append(slot)
        return slots

    def _decide(self) -> None:
        """Find the groups that are wide, and the ports that prevent others from being wide."""
        asking: dict[_Slot, _Slot] = {}
        for slot in (slot for slots in self._slots.values() for slot in slots):
            formats = slot.claim.ports[slot.port]
            if slot.request is not None and slot.request.precision == WIDE or _only(formats, WIDE):
                asking.setdefault(slot.root, slot)
            if not _has(formats, WIDE) or slot.request is not None and slot.request.precision == NARROW:
                self._blocked.setdefault(slot.root, slot)
        self._wide = {root: slot for root, slot in asking.items() if root not in self._blocked}

    def _settle(self, claim: Claim) -> Claim:
        node = claim.node
        if id(node) in self._halves:
            request = self._requests.formats[node][-1]
            self._view.remark("passed", node, HALF, f"in {HALF}, as {request.asked_by} says")
            return self._narrowing.of(claim, {}, HALF)
        slots = self._slots[id(node)]
        widths = {slot.port: WIDE if slot.root in self._wide else NARROW for slot in slots}
        settled = {slot.port for slot in slots if slot.request is not None and slot.request.ports == MODEL_OUTPUTS}
        if self._speaks_of(claim):
            self._remark(claim, slots)
        narrowed = self._narrowing.of(claim, widths, NARROW)
        return replace(narrowed, settled=frozenset(settled)) if settled else narrowed

    def _speaks_of(self, claim: Claim) -> bool:
        """Check whether remarks on a claim are due: those on other claims were made when these were settled."""
        return claim.pinned or not self._quiet

    def _remark(self, claim: Claim, slots: Sequence[_Slot]) -> None:
        wide = [slot for slot in slots if slot.root in self._wide]
        if wide:
            asked = next((slot.request for slot in wide if slot.request is not None), None)
            ports = ", ".join(slot.port for slot in wide)
            first = self._wide[wide[0].root]
            because: tuple[ir.Node, ...] = ()
            if asked is not None:
                why = f"{ports} in {WIDE}, as {asked.asked_by} says"
            elif first.claim.node is claim.node:
                why = f"{ports} in {WIDE}, {claim.because}"
            else:
                why = f"{ports} in {WIDE} with '{first.claim.node.name}', which holds the same values"
                because = (first.claim.node,)
            self._view.remark("passed", claim.node, WIDE, why, because=because)
        for slot in slots:
            request = slot.request
            if request is None or request.precision != WIDE or slot.root in self._wide:
                continue
            blocking = self._blocked[slot.root]
            self._fall_back(claim, request, f"{slot.port} stays in {NARROW}: {_obstacle(slot, blocking)}", blocking)
            return

    def _fall_back(self, claim: Claim, request: NodeRequest, why: str, blocking: _Slot | None = None) -> None:
        self._back[claim.node.name] = None
        other = blocking.claim if blocking is not None else claim
        because = () if other.node is claim.node else (other.node,)
        text = f"not in {request.precision}, although {request.asked_by} asks for it: {why}"
        self._view.remark("missed", claim.node, "width-fallback", text, because=because, source=other.source)


def _obstacle(slot: _Slot, blocking: _Slot) -> str:
    node = blocking.claim.node
    if blocking.request is not None and blocking.request.precision == NARROW:
        return f"'{node.name}' is in {NARROW}, as {blocking.request.asked_by} says"
    if node is slot.claim.node:
        return f"{node.op_type} has no {WIDE} at {blocking.port}"
    return f"'{node.name}' ({node.op_type}), which holds the same values, has no {WIDE} at {blocking.port}"


def _is_constant(value: ir.Value) -> bool:
    return value.const_value is not None and not value.is_graph_input()
