"""Work and memory traffic of a BPU subgraph: multiply-adds, weights, inputs and outputs, and live values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.compiler import CompiledModel


_BACKEND = "bpu-int8"
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_VIEWS = frozenset({"Concat", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that only move numbers: their results share the memory of their operands."""
_ELEMENTWISE = frozenset(
    {
        "Clip", "Div", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Mul", "PRelu", "Pow",
        "Relu", "Selu", "Sigmoid", "Softplus", "Sqrt", "Tanh",
    }
)  # fmt: skip
"""Operators computed in place if they have a single computed operand: x, or x and f(x)."""


@dataclass(frozen=True)
class Traffic:
    """The work of one subgraph.

    Attributes:
        macs: Multiply-adds of convolutions and matrix products.
        weights: Bytes of the constants of products.
        read: Bytes of its inputs, in 8 bits.
        written: Bytes of its outputs, in their formats.
        held: Bytes of every internal value, in 8 bits. An activation shares the memory of its operand.
        attention: Bytes of the result of each Softmax between two products, in 8 bits.
    """

    macs: int
    weights: int
    read: int
    written: int
    held: tuple[int, ...] = ()
    attention: tuple[int, ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Traffic:
        """Read the data of `as_dict`."""
        held, attention = (tuple(size for size, count in data[name] for _ in range(count)) for name in _LISTS)
        return cls(data["macs"], data["weights"], data["read"], data["written"], held, attention)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; lists of sizes as pairs of size and count, the largest first."""
        counts = {
            name: [[size, getattr(self, name).count(size)] for size in sorted({*getattr(self, name)}, reverse=True)]
            for name in _LISTS
        }
        return {"macs": self.macs, "weights": self.weights, "read": self.read, "written": self.written, **counts}


_LISTS = ("held", "attention")


@dataclass
class _Count:
    macs: int = 0
    weights: int = 0
    read: dict[str, int] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    attention: list[int] = field(default_factory=list)


def traffic_of(result: CompiledModel) -> dict[int, Traffic | None]:
    """Count the work and traffic of every subgraph on the BPU, by its number.

    A subgraph with an unknown extent has None.
    """
    regions = {node.output: node.region for node in result.plan.nodes if node.backend == _BACKEND}
    numbers = {region: number for number, region in enumerate(dict.fromkeys(regions.values()))}
    graph = result.model.graph
    counts = {number: _Count() for number in numbers.values()}
    home: dict[str, int] = {}  # the subgraph that made a value, by name
    holder: dict[str, str] = {}  # the value whose memory another one shares
    unknown: set[int] = set()
    for node in graph:
        first = node.outputs[0].name or ""
        if node.op_type in _CONVERSIONS:
            _pass_on(node, holder, home)
        if node.op_type in _CONVERSIONS or first not in regions:
            continue
        number = numbers[regions[first]]
        try:
            _count(node, number, counts[number], holder, home)
        except _OpenExtentError:
            unknown.add(number)
        for value in node.outputs:
            home[value.name or ""] = number
    _count_written(graph, regions, numbers, counts, home, holder)
    return {number: None if number in unknown else _total(count) for number, count in counts.items()}


def has_whole_operators(result: CompiledModel) -> bool:
    """Check whether planned operators are single nodes of the result; `arithmetic=integers` splits them."""
    made = {value.name: node.op_type for node in result.model.graph for value in node.outputs}
    planned = (node for node in result.plan.nodes if node.backend == _BACKEND and node.op_type in _PRODUCTS)
    return all(made.get(node.output) == node.op_type for node in planned)


class _OpenExtentError(Exception):
    """Raised if an extent is unknown."""


def _pass_on(node: ir.Node, holder: dict[str, str], home: dict[str, int]) -> None:
    """Treat the result of a conversion as its operand: both are one value on the BPU."""
    if node.inputs[0] is None:
        return
    source, result = node.inputs[0].name or "", node.outputs[0].name or ""
    holder[result] = holder.get(source, source)
    if source in home:
        home[result] = home[source]


def _count(node: ir.Node, number: int, count: _Count, holder: dict[str, str], home: Mapping[str, int]) -> None:
    operands = [value for value in node.inputs if value is not None]
    computed = [value for value in operands if not _is_constant(value)]
    bases = [holder.get(value.name or "", value.name or "") for value in computed]
    for value, base in zip(computed, bases):
        if home.get(value.name or "") != number:
            count.read[base] = _elements(value)
    name, size = node.outputs[0].name or "", _elements(node.outputs[0])
    if node.op_type in _PRODUCTS:
        count.weights += sum(_constant_bytes(value) for value in operands if _is_constant(value))
        count.macs += _macs(node, size)
    if node.op_type in _VIEWS and bases:
        for value in node.outputs:
            holder[value.name or ""] = bases[0]
    elif node.op_type in _ELEMENTWISE and len(set(bases)) == 1 and home.get(bases[0]) == number:
        holder[name] = bases[0]
        count.made[bases[0]] = max(count.made.get(bases[0], 0), size)
    else:
        for value in node.outputs:
            count.made[value.name or ""] = _elements(value)
    if node.op_type == "Softmax":
        count.attention.append(size)


def _count_written(
    graph: ir.Graph,
    regions: Mapping[str, int | None],
    numbers: Mapping[int | None, int],
    counts: Mapping[int, _Count],
    home: Mapping[str, int],
    holder: Mapping[str, str],
) -> None:
    """Count the values that other nodes read or the model returns; they leave as floats or 32-bit integers."""
    outside = {value.name or "": value for value in graph.outputs}
    for node in graph:
        if node.op_type in _CONVERSIONS:
            continue
        first = node.outputs[0].name or ""
        own = numbers[regions[first]] if first in regions else None
        outside |= {
            value.name or "": value for value in node.inputs if value is not None and home.get(value.name or "") != own
        }
    for name, value in outside.items():
        if name in home and value.shape is not None and value.shape.is_static():
            counts[home[name]].written[holder.get(name, name)] = 4 * _elements(value)


def _total(count: _Count) -> Traffic:
    held = tuple(size for name, size in count.made.items() if name not in count.written)
    return Traffic(
        count.macs, count.weights, sum(count.read.values()), sum(count.written.values()), held, tuple(count.attention)
    )


def _is_constant(value: ir.Value) -> bool:
    """Check whether a value is a constant, possibly after conversions."""
    producer = value.producer()
    while producer is not None and producer.op_type in _CONVERSIONS and producer.inputs[0] is not None:
        value = producer.inputs[0]
        producer = value.producer()
    return value.is_initializer() or producer is not None and producer.op_type == "Constant"


def _constant_bytes(value: ir.Value) -> int:
    """Return the size of a constant: one byte per weight element, four per bias element."""
    return _elements(value) * (4 if value.shape is not None and len(value.shape) < 2 else 1)


def _macs(node: ir.Node, results: int) -> int:
    first, weight = node.inputs[:2]
    if first is None or weight is None or first.shape is None or weight.shape is None:
        raise _OpenExtentError
    if node.op_type == "Conv":
        return results * math.prod(_extents(weight)[1:])
    if node.op_type == "ConvTranspose":
        return _elements(first) * math.prod(_extents(weight)[1:])
    across = node.op_type == "Gemm" and bool(node.attributes.get_int("transA"))
    return results * _extents(first)[0 if across else -1]


def _elements(value: ir.Value) -> int:
    return math.prod(_extents(value))


def _extents(value: ir.Value) -> list[int]:
    if value.shape is None or not value.shape.is_static():
        raise _OpenExtentError
    return [int(extent) for extent in _integers(value.shape)]


def _integers(shape: ir.Shape) -> Iterable[int]:
    return (extent for extent in shape.dims if isinstance(extent, int))
