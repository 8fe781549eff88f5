"""Pins: manual placements, which take precedence over claims but must be legal, too."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir import FLOATS, Format, body_nodes, format_of, is_onnx
from dovetail.planning import HOST, NodeRequest, identity, operator_name, structural_keys, walk
from dovetail.plugin.loading import asking
from dovetail.text import did_you_mean
from dovetail_onnx.results.provenance import changed_origins

from dovetail_placement.node_requests import NodeRequests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Claim, Plan, PlannedNode
    from dovetail.plugin import Backend, Registry


_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")

_UNFIT_SHOWN = 20
_NUMBERED = re.compile(r"(in|out)\d+")  # port names of control flow
_NO_CHOICE = "unknown precision '{}'"
_CHOICES = f"one of {', '.join(FLOATS)}, or a quantized format such as int8[symmetric]"


class Pin(NamedTuple):
    """A manual placement of one node.

    Attributes:
        node: The node.
        request: The pin, or the entry of a replayed plan.
    """

    node: ir.Node
    request: NodeRequest


class Unfit(NamedTuple):
    """An entry of a replayed plan that matches no node of the model.

    Attributes:
        entry: The entry.
        other: The node that computes the value of that name with another operator, or None.
    """

    entry: PlannedNode
    other: ir.Node | None = None

    def __str__(self) -> str:
        entry = self.entry
        text = f"the plan's entry '{entry.name or entry.output}' ({entry.operator}) fits no node of this model"
        if self.other is None:
            return text
        operator = operator_name(self.other.domain, self.other.op_type)
        return f"{text}: '{entry.output}' is computed by {operator} here"


class Pins:
    """All manual placements of a request: those of a replayed plan, overridden by those of the user.

    Raises:
        DovetailError: A pin or the plan does not fit the model or the chosen backends.
    """

    def __init__(self, model: Model, ctx: Context):
        backends = {backend.name: backend for backend in ctx.backends}
        plan = ctx.request.plan
        found, self._unfit = ({}, []) if plan is None else planned_pins(model, plan, backends, ctx.registry)
        self._gone: list[NodeRequest] = []
        requests = ctx.analysis(NodeRequests, model)
        for request in requests.pins():
            _check(request, (*backends, HOST))
            nodes = requests.nodes_of(request)
            if not nodes:
                self._gone.append(request)
            found |= {id(node): Pin(node, request) for node in nodes}
        self._found = found | pins_of_bodies(model, found)

    def __iter__(self) -> Iterator[Pin]:
        return iter(list(self._found.values()))

    def of(self, node: ir.Node) -> Pin | None:
        """Return the pin of a node, or None."""
        return self._found.get(id(node))

    def drop(self, node: ir.Node) -> None:
        """Drop the pin of a node, because its backend declined it."""
        self._found.pop(id(node), None)

    def remark_unfit(self, ctx: Context) -> None:
        """Remark what does not fit: entries of a replayed plan, versions of its backends, and pins of files."""
        for request in self._gone:
            ctx.remark("analysis", "", "pin-lost", f"{request}: preparing the model folded or removed the node")
        plan = ctx.request.plan
        if plan is not None and ctx.plugins is not None:
            for why, back in changed_origins(plan.backends, ctx.plugins):
                ctx.remark("analysis", "", "version", why, suggest=back)
        for unfit in self._unfit[:_UNFIT_SHOWN]:
            ctx.remark("missed", "", "plan-entry", str(unfit))
        if len(self._unfit) > _UNFIT_SHOWN:
            why = f"{len(self._unfit)} entries of the plan fit no node of this model; {_UNFIT_SHOWN} are named here"
            ctx.remark("missed", "", "plan-entry", why)


def _check(request: NodeRequest, backends: Sequence[str]) -> None:
    if request.backend not in backends:
        chosen = f"chosen: {', '.join(backends)}"
        raise DovetailError(f"{request} names backend '{request.backend}', which was not chosen", chosen)
    given = [format_ for format_ in request.formats.values() if format_ is not None]
    wrong = next((format_ for format_ in given if not _is_choice(format_)), None)
    if wrong is not None:
        raise DovetailError(f"{request}: {_NO_CHOICE.format(wrong)}", _CHOICES)


def planned_pins(
    model: Model, plan: Plan, backends: Mapping[str, Backend], registry: Registry
) -> tuple[dict[int, Pin], list[Unfit]]:
    """Convert a plan to pins: every node that it lists keeps its backend and its types.

    A node is matched by its operator and the value that it computes, else by its structure; unmatched nodes are placed
    again.

    Returns:
        The pins by `id(node)`, and the entries of the plan that match no node, with the reason.

    Raises:
        DovetailError: The plan names a backend that was not chosen or an invalid precision, or no entry matches.
    """
    known, pins = (*backends, HOST), {}
    matched, unfit = _match(model, plan)
    for node, entry in matched:
        where = f"plan: node '{entry.name}'"
        if entry.backend not in known:
            raise DovetailError(
                f"{where} is on '{entry.backend}', which was not chosen", f"add --backend {entry.backend}"
            )
        if _is_adopted(node, backends.get(entry.backend), registry):
            continue
        formats = _planned_formats(node, entry, where)
        pins[id(node)] = Pin(node, NodeRequest("pin", entry.output, where, entry.backend, formats))
    if not pins and plan.nodes:
        raise DovetailError("the plan was made for another model: it knows no node of this one")
    return pins, unfit


def _is_adopted(node: ir.Node, backend: Backend | None, registry: Registry) -> bool:
    """Check whether a conversion of the source model is on a backend only because of adjacent integers.

    It is placed with them again, once they are typed.
    """
    static = _is_conversion(node) and node.op_type != "DynamicQuantizeLinear"
    if not static or backend is None:
        return False
    with asking(registry, backend):
        return not backend.lists(node.domain, node.op_type)


def _is_conversion(node: ir.Node) -> bool:
    return is_onnx(node) and node.op_type in _CONVERSIONS


def _match(model: Model, plan: Plan) -> tuple[list[tuple[ir.Node, PlannedNode]], list[Unfit]]:
    """Match entries of the plan with nodes; return the pairs in graph order, and the entries without a match.

    Names are matched before structural keys: a new node may have the structure of a node that the plan knows by name,
    and must not take its entry.
    """
    by_output, by_key = plan.index()
    found: dict[int, PlannedNode] = {}
    others: dict[str, ir.Node] = {}
    nodes = [(identity(path, node), node) for path, node in walk(model)]
    for name, node in nodes:
        entry = by_output.get(name)
        if entry is not None and _same_operator(entry, node):
            found[id(node)] = entry
        elif entry is not None:
            others[name] = node
    used = {id(entry) for entry in found.values()}
    if len(found) < len(nodes) and len(used) < len(plan.nodes):
        keys = structural_keys(model)
        for _, node in nodes:
            entry = by_key.get(keys[id(node)]) if id(node) not in found else None
            if entry is not None and id(entry) not in used:
                found[id(node)] = entry
                used.add(id(entry))
    unfit = [Unfit(entry, others.get(entry.output)) for entry in plan.nodes if id(entry) not in used]
    return [(node, found[id(node)]) for _, node in nodes if id(node) in found], unfit


def _same_operator(entry: PlannedNode, node: ir.Node) -> bool:
    """Check whether an entry names this operator, or none: hand-written entries may omit it."""
    return not entry.op_type or entry.operator == operator_name(node.domain, node.op_type)


def _planned_formats(node: ir.Node, entry: PlannedNode, where: str) -> dict[str, Format | None]:
    """Return the formats that an entry requires, by port; empty if none of them can be chosen.

    Raises:
        DovetailError: One of them is neither a float format nor quantized.
    """
    fixed = {format_of(value.dtype) for value in (*node.inputs, *node.outputs) if value is not None}
    for format_ in (entry.precision, *entry.ports.values()):
        # Nodes without floats are listed with their actual type, which is not a choice.
        if format_ is not None and not _is_choice(format_) and format_ not in fixed:
            raise DovetailError(f"{where}: {_NO_CHOICE.format(format_)}", _CHOICES)
    if _is_conversion(node) and {entry.precision, *entry.ports.values()} <= fixed:
        return {}  # it kept its source types, as typing does by default
    chosen = entry.precision is not None and _is_choice(entry.precision)
    return {"": entry.precision, **entry.ports} if chosen or entry.ports else {}


def _is_choice(format_: Format) -> bool:
    """Check whether a node can be asked to compute in this format."""
    return format_.is_float or format_.quantized


def pins_of_bodies(model: Model, pins: Mapping[int, Pin]) -> dict[int, Pin]:
    """Extend pins to whole control-flow nodes: the node and all nodes of its bodies are on one backend.

    Raises:
        DovetailError: Two of them are pinned to different backends.
    """
    added: dict[int, Pin] = {}
    for node in model.graph if pins else ():
        members = [node, *body_nodes(node)]
        pinned = [pins[id(member)] for member in members if id(member) in pins]
        if len(members) == 1 or not pinned:
            continue
        first = pinned[0]
        other = next((pin for pin in pinned if pin.request.backend != first.request.backend), None)
        if other is not None:
            raise DovetailError(
                f"{other.request}: '{other.node.name}' and '{first.node.name}' belong to '{node.name}', which one "
                f"backend runs whole, but they are pinned to {other.request.backend} and {first.request.backend}",
                f"pin '{node.name}' alone",
            )
        whole = replace(first.request, formats={})
        added |= {id(member): Pin(member, whole) for member in members if id(member) not in pins}
    return added


def pinned_claim(claim: Claim, pin: Pin) -> Claim:
    """Return `claim` with its formats narrowed to the pinned ones.

    Raises:
        DovetailError: No port can have the pinned format, or the node has no port of that name.
    """
    request = pin.request
    pinned = request.formats
    unknown = next((port for port in pinned if port and port not in claim.ports and not _NUMBERED.fullmatch(port)), "")
    if unknown:
        ports = f"its ports are {', '.join(claim.ports)}" if claim.ports else "none of its ports has a type to choose"
        raise DovetailError(f"{request}: '{claim.node.name}' has no port '{unknown}'", ports)
    because = f"as {request} says"
    if not pinned:
        return replace(claim, because=because, pinned=True)
    chosen: dict[str, tuple[Format, ...]] = {}
    fitted = False
    everywhere = pinned.get("")
    for port, formats in claim.ports.items():
        wanted = pinned.get(port, everywhere)
        fits = wanted in formats
        fitted |= fits
        if port in pinned and not fits:
            raise _cannot(request, claim, wanted, formats)
        chosen[port] = (wanted,) if wanted is not None and fits else formats
    if claim.ports and not fitted and everywhere is not None and _is_choice(everywhere):
        raise _cannot(request, claim, everywhere, [format_ for formats in claim.ports.values() for format_ in formats])
    settled = frozenset(claim.ports if everywhere is not None else pinned)
    return replace(claim, ports=chosen, role="pinned", because=because, keep=frozenset(), settled=settled, pinned=True)


def _cannot(request: NodeRequest, claim: Claim, wanted: Format | None, offered: Iterable[Format]) -> DovetailError:
    texts = sorted({str(format_) for format_ in offered})
    near = did_you_mean(str(wanted), texts)
    return DovetailError(
        f"{request}: {request.backend} cannot compute '{claim.node.name}' in {wanted}{near}",
        f"it offers {', '.join(texts)} there",
    )
