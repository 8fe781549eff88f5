"""Port types: find the assignments that the backend, the operator schema and the node's own types allow.

* A float32 port may become any listed float type. Any other float type is accepted only if it is listed itself, and is
  never narrowed: float64 does not silently lose precision.
* Ports with one type parameter of the schema have one type. Ports that the file does not name separately share one
  choice, except those that stay in the high precision (`keep`), and the two ends of a Cast. Ports that the file leaves
  out follow those that it names: in floats, or in the floats that their integers express.
* A quantized format expresses floats through a scale, so the schema does not limit its element type. Ports that the
file does not name separately also share one such format, and those of a rule with `same_scale` share their parameters.
* Integer and boolean ports are free, unless the file names the port, or lists types for all ports that include
  unquantized integers.
* Sequences and optionals are accepted only by an operator that the file lists, with the element type listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir import Format
from dovetail.plugin import ParameterRule, PortRule, Refusal
from dovetail_onnx.signatures import Port, input_name, output_name

from dovetail_schemas.node_view import NodeView
from dovetail_schemas.operators import FLOATS, dtype_name
from dovetail_schemas.rules import Sharing
from dovetail_schemas.terms import Unknown
from dovetail_schemas.type_specs import INPUTS_OF_PRODUCTS, PortTypes, TypeSpec

if TYPE_CHECKING:
    import onnx_ir as ir


_HOLDS_MORE = {
    "float16": {"float32", "float64"},
    "bfloat16": {"float32", "float64"},
    "float64": set(),
}
_CHANNELS_LAST = frozenset({"MatMul"})
_NO_NUMBERS = frozenset({"string", "complex64", "complex128"})
_CONVERSIONS = frozenset({"Cast", "CastLike"})


_NOTHING_SHARED = Sharing()


@dataclass(frozen=True, slots=True)
class TypeAnswer:
    """The allowed types of a node.

    Attributes:
        types: Allowed formats by port, in the order of the file.
        reasons: Why no assignment exists; empty if one does.
        pending: Whether the answer depends on the region.
        rules: Further requirements on quantized ports.
    """

    types: dict[str, tuple[Format, ...]]
    reasons: tuple[Refusal, ...] = ()
    pending: bool = False
    rules: Mapping[str, PortRule] = field(default_factory=dict)


@dataclass(slots=True)
class NodePort:
    """A port of a node with its value's present type, and what is decided on its types."""

    name: str
    alias: str
    present: str
    formal: Port | None
    channels: int = 1
    contained: bool = False
    plain: tuple[str, ...] = ()
    quantized: Mapping[Format, ParameterRule] = field(default_factory=dict)
    order: tuple[Format, ...] = ()
    shares: bool = False
    said: bool = True

    @property
    def follows(self) -> bool:
        """Whether its scale is always a product of other ports, and so never shared."""
        return all(rule.factors for rule in self.quantized.values())

    @property
    def expressed(self) -> tuple[str, ...]:
        """The float types of its values, represented in floats or expressed by integers."""
        return tuple(dict.fromkeys([*self.plain, *(format_.computes_in for format_ in self.quantized)]))

    @property
    def formats(self) -> tuple[Format, ...]:
        """The allowed formats, in the order of the file."""
        plain = tuple(map(Format.of, self.plain))
        if not self.quantized:
            return plain
        allowed = {*plain, *self.quantized}
        return tuple(dict.fromkeys([format_ for format_ in self.order if format_ in allowed] + list(plain)))


def untyped(view: NodeView) -> str:
    """Return the name of a value without a known type, or an empty text."""
    for value in (*view.inputs, *view.outputs):
        if value is not None and value.name and not dtype_name(value):
            return value.name
    return ""


def assign_types(
    view: NodeView,
    said: PortTypes | None,
    listed: bool,
    precisions: tuple[str | None, str | None],
    keep: frozenset[str],
    source: str,
    sharing: Sharing = _NOTHING_SHARED,
    as_typed: bool = False,
) -> TypeAnswer:
    """Compute the allowed formats of a node's ports.

    Args:
        view: The node; all its values have a type.
        said: The types in the rule, or None.
        listed: Whether the file names the operator.
        precisions: The backend's low and high precision.
        keep: Ports that stay in the high precision.
        source: File and line for the reasons.
        sharing: The rule's settings on the parameters of quantized ports.
        as_typed: Ports keep their present types, instead of the types that they could get.
    """
    ports: list[NodePort] = []
    reasons: list[Refusal] = []
    pending = False
    for port in ports_of(view):
        name, alias = port.name, port.alias
        if port.contained and (not listed or said is None):
            reasons.append(Refusal(f"{name} is no tensor, and {view.op_type} is not listed with types", source))
        elif said is not None:
            apart = said.ports.get(name, said.ports.get(alias))
            specs = apart if apart is not None else said.common
            chosen, waits = _held(specs or (), view)
            taken = _take(port, specs, chosen, apart is not None, precisions, name in keep)
            if as_typed and port.present in FLOATS and not port.contained:
                port.plain = tuple(dtype for dtype in port.plain if dtype == port.present)
                port.order, port.quantized, taken = (), {}, bool(port.plain)
            port.quantized = {format_: _resolved(rule, view) for format_, rule in port.quantized.items()}
            if not taken and waits:
                pending = True
            elif not taken:
                reasons.append(_refuse(port, specs or (), source))
            if port.plain or port.quantized:
                ports.append(port)
        elif port.present in _NO_NUMBERS:
            reasons.append(Refusal(f"{name} is {port.present}, and no type is listed for it", source))
    if not reasons and not pending:
        reasons += _tie(ports, view, source)
    if reasons:
        return TypeAnswer({}, tuple(reasons))
    tied = view.op_type not in _CONVERSIONS
    rules = {port.name: _rule_of(port, tied, sharing) for port in ports if port.quantized}
    return TypeAnswer({port.name: port.formats for port in ports}, (), pending, rules)


def _rule_of(port: NodePort, tied: bool, sharing: Sharing) -> PortRule:
    """Return the further requirements on a quantized port."""
    named = not sharing.ports or port.name in sharing.ports or port.alias in sharing.ports
    same_scale = sharing.same_scale if named and not port.follows else ""
    return PortRule(port.quantized, port.shares and tied, same_scale, sharing.fuses if port.alias == "out0" else ())


def _take(
    port: NodePort,
    specs: tuple[TypeSpec, ...] | None,
    chosen: list[TypeSpec],
    apart: bool,
    precisions: tuple[str | None, str | None],
    kept: bool,
) -> bool:
    """Fill in the allowed formats of a port; return False if there are none."""
    if port.present in FLOATS and not port.contained:
        _allow_float(port, specs, chosen, precisions)
        port.shares = not apart and port.said and not kept and len(_dtypes(port.formal)) != 1
        return bool(port.plain or port.quantized)
    return _allow_other(port, apart, chosen, specs)


def ports_of(view: NodeView) -> Iterable[NodePort]:
    """Yield the ports of a node whose values are present, inputs first; nothing is decided on them yet."""
    sig = view.signature
    for i, value in enumerate(view.inputs):
        if value is not None and value.name:
            yield _port(view, input_name(i, sig), f"in{i}", value, sig.input(i) if sig is not None else None)
    for i, value in enumerate(view.outputs):
        if value.name:
            yield _port(view, output_name(i, sig), f"out{i}", value, sig.output(i) if sig is not None else None)


def _port(view: NodeView, name: str, alias: str, value: ir.Value, formal: Port | None) -> NodePort:
    contained = type(value.type).__name__ in ("SequenceType", "OptionalType")
    return NodePort(name, alias, dtype_name(value), formal, _channel_axis(view.op_type, alias, value), contained)


def _channel_axis(op_type: str, alias: str, value: ir.Value) -> int:
    """Return the axis along which a result, or the bias that is added to it, has a scale per channel of a weight.

    A vector has only one axis. In other values ONNX puts channels second, but the columns of a weight of MatMul become
    the last axis of its result, whatever its rank.
    """
    rank = None if value.shape is None else len(value.shape)
    if rank is not None and rank < 2:
        return 0
    if op_type in _CHANNELS_LAST and alias.startswith("out"):
        return -1 if rank is None else rank - 1
    return 1


def _held(specs: Iterable[TypeSpec], view: NodeView) -> tuple[list[TypeSpec], bool]:
    """Return the types whose condition holds, and whether one depends on the region."""
    answers = [(spec, spec.when.check(view)) for spec in specs]
    return [spec for spec, answer in answers if answer is True], any(isinstance(a, Unknown) for _, a in answers)


def _dtypes(formal: Port | None) -> frozenset[str]:
    return formal.dtypes if formal else frozenset()


def _allow_float(
    port: NodePort,
    specs: tuple[TypeSpec, ...] | None,
    chosen: list[TypeSpec],
    precisions: tuple[str | None, str | None],
) -> None:
    schema = _dtypes(port.formal)
    if len(schema) == 1:
        port.plain = (port.present,)  # fixed by the schema: computed, never written
        return
    if specs is None:
        port.plain, port.said = (port.present,), False
        return
    listed = [dtype for spec in chosen for dtype in spec.dtype if dtype in FLOATS and not spec.quantizes(dtype)]
    if port.present == "float32" or port.present in listed:
        wider = _HOLDS_MORE.get(port.present, {"float32", "float64"})
        port.plain = tuple(
            dtype
            for dtype in listed
            if (not schema or dtype in schema)
            and (port.present == "float32" or dtype == port.present or dtype in wider)
        )
    low, high = precisions
    computed = low if low in FLOATS and (not schema or low in schema) else None
    if port.present in ("float32", high, computed):
        _quantize(port, chosen, port.present, computed=computed)
        if port.present not in ("float32", high):
            port.quantized = {held: rule for held, rule in port.quantized.items() if rule.scale == "compute"}


def _quantize(
    port: NodePort, chosen: list[TypeSpec], expressed: str, only: str = "", computed: str | None = None
) -> None:
    """Fill in the quantized formats of a port, and the source of the parameters of each.

    Args:
        port: The port.
        chosen: The types that the file lists for it.
        expressed: The float type that they express.
        only: The required element type, or empty.
        computed: The float type that formats with `scale: compute` express instead.
    """
    found: dict[Format, ParameterRule] = {}
    order: list[Format] = []
    for spec in chosen:
        for dtype in spec.dtype:
            if not spec.quantizes(dtype):
                order.append(Format.of(dtype))
            elif only in ("", dtype):
                floats = (computed or expressed) if spec.scale == "compute" else expressed
                for format_ in spec.formats(dtype, port.channels, floats):
                    found.setdefault(format_, spec.parameters)
                    order.append(format_)
    port.quantized, port.order = found, tuple(order)


def _resolved(rule: ParameterRule, view: NodeView) -> ParameterRule:
    """Return the rule with the factors of its scale named as at this operator: X and W may be A and B of a Gemm."""
    if not rule.factors:
        return rule
    names = [
        port if port in view.ports else input_name(INPUTS_OF_PRODUCTS.index(port), view.signature)
        for port in rule.factors
    ]
    return rule._replace(scale="*".join(names))


def _allow_other(port: NodePort, apart: bool, chosen: list[TypeSpec], specs: tuple[TypeSpec, ...] | None) -> bool:
    """Handle integers, booleans, strings, complex numbers, and elements of sequences."""
    listed = {dtype for spec in chosen for dtype in spec.dtype}
    if port.contained or port.present in _NO_NUMBERS:
        return port.present in listed
    if apart:
        if any(spec.quantizes(dtype) for spec in chosen for dtype in spec.dtype if dtype == port.present):
            _quantize(port, chosen, "float32", port.present)
        return port.present in listed
    integers = {d for spec in specs or () if not spec.quantized for d in spec.dtype if d not in FLOATS}
    return not integers or port.present in integers or len(_dtypes(port.formal)) == 1


def _refuse(port: NodePort, specs: Iterable[TypeSpec], source: str) -> Refusal:
    allowed = dict.fromkeys(dtype for spec in specs for dtype in spec.dtype)
    text = f"{port.name} is {port.present}; allowed: {', '.join(allowed) or 'nothing'}"
    schema = _dtypes(port.formal)
    if schema and port.present == "float32" and not schema & allowed.keys():
        text += f", and the operator takes {', '.join(sorted(schema & FLOATS))}"
    return Refusal(text, source)


def _tie(ports: list[NodePort], view: NodeView, source: str) -> list[Refusal]:
    """Narrow tied ports to one type: those of one type parameter, and those that share one choice."""
    sets: list[list[NodePort]] = []
    by_parameter: dict[str, list[NodePort]] = {}
    for port in ports:
        if port.plain and port.formal and port.formal.homogeneous:
            by_parameter.setdefault(port.formal.parameter, []).append(port)
    for tied in by_parameter.values():
        leading = next((port for port in tied if port.said), None)
        for port in tied:
            if not port.said and leading is not None:
                port.plain = leading.expressed
        sets.append(tied)
    if view.op_type not in _CONVERSIONS:
        sets.append([port for port in ports if port.shares and port.plain])
    # Twice, because the shared choice may narrow a port whose type parameter was visited before.
    for tied in (*sets, *sets):
        if not tied:
            continue
        common = [dtype for dtype in tied[0].expressed if all(dtype in port.expressed for port in tied)]
        if not common and not all(port.quantized for port in tied):
            each = "; ".join(f"{port.name}: {', '.join(port.plain)}" for port in tied)
            return [Refusal(f"no type fits all of these ports ({each})", source)]
        for port in tied:
            port.plain = tuple(dtype for dtype in common if dtype in port.plain)
    return []
