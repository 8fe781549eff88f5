"""Work and memory traffic of a BPU subgraph: multiply-adds, weights, inputs and outputs, and live values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dovetail_bpu_int8.activations import in_swish

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin import CompiledModel


_BACKEND = "bpu-int8"
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_VIEWS = frozenset({"Concat", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze"})
"""Operators that only move numbers: their results share the memory of their operands."""
_RENAMED = _VIEWS - {"Concat", "Slice", "Split"}
"""Operators without a row in the vendor's figures of time: their results are their operands, seen otherwise."""
_ELEMENTWISE = frozenset(
    {
        "Clip", "Div", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Mul", "PRelu", "Pow",
        "Relu", "Selu", "Sigmoid", "Softplus", "Sqrt", "Tanh",
    }
)  # fmt: skip
"""Operators computed in place if they have a single computed operand: x, or x and f(x)."""
_WHOLE = frozenset({"ReduceMax", "ReduceMean", "ReduceSum", "Softmax", "Transpose"})
"""Operators that cannot work row by row, as convolutions do: they read and write whole values."""
_SOFTMAX_PARTS = 6  # rows of a Softmax in the vendor's logs: maximum, difference, exponential, sum, reciprocal, product
_SOFTMAX_MOVES = 6  # how often a value of its size is written or read between these
_WIDE = "int16"
_CHANNELS, _OUTPUT_CHANNELS = 4, 16  # numbers to which the channels of values and of outputs are padded


@dataclass(frozen=True)
class SubgraphTraffic:
    """The work of one subgraph.

    Attributes:
        macs: Multiply-adds of convolutions and matrix products.
        matrices: Those of them in products of two computed operands.
        operators: Number of operators, as the vendor's logs list them: a SiLU is one, and a Softmax six.
        wide: Elements of every Softmax in 16 bits, whose exponential and reciprocal the vendor computes by two tables.
        weights: Bytes of the constants of products.
        read: Bytes of its inputs, in 8 bits.
        written: Bytes of its outputs, in their formats, with padded channels.
        held: Bytes of every internal value that is computed row by row, in 8 bits, with padded channels. An activation
            shares the memory of its operand.
        whole: Bytes of every value that an operator reads or writes as a whole, once for each time: operands and
            results of products of two computed operands, reductions, Softmax, Transpose, and elementwise operators
            among these. Those of a Softmax in 16 bits have two bytes an element.
    """

    macs: int
    matrices: int
    operators: int
    wide: int
    weights: int
    read: int
    written: int
    held: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SubgraphTraffic:
        """Read the data of `as_dict`."""
        lists = (tuple(size for size, count in data[name] for _ in range(count)) for name in _LISTS)
        return cls(*(data[name] for name in _NUMBERS), *lists)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; lists of sizes as pairs of size and count, the largest first."""
        counts = {name: [list(pair) for pair in sorted(Counter(getattr(self, name)).items())[::-1]] for name in _LISTS}
        return {**{name: getattr(self, name) for name in _NUMBERS}, **counts}


_NUMBERS = ("macs", "matrices", "operators", "wide", "weights", "read", "written")
_LISTS = ("held", "whole")


@dataclass
class _Count:
    macs: int = 0
    matrices: int = 0
    operators: int = 0
    wide: int = 0
    weights: int = 0
    read: dict[str, int] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    whole: list[tuple[str, int]] = field(default_factory=list)  # bytes of values by the name of the memory


def traffic_of(result: CompiledModel) -> dict[int, SubgraphTraffic | None]:
    """Count the work and traffic of every subgraph on the BPU, by its number.

    A subgraph with an unknown extent has None.
    """
    planned = [node for node in result.plan.nodes if node.backend == _BACKEND]
    regions = {node.output: node.region for node in planned}
    formats = ((node.output, one) for node in planned for one in (node.precision, *node.ports.values()))
    wide = {output for output, one in formats if one is not None and one.element == _WIDE}
    numbers = {region: number for number, region in enumerate(dict.fromkeys(regions.values()))}
    graph = result.model.graph
    counts = {number: _Count() for number in numbers.values()}
    home: dict[str, int] = {}  # the subgraph that made a value, by name
    holder: dict[str, str] = {}  # the value whose memory another one shares
    matrices: set[str] = set()  # values that operators on whole values compute
    unknown: set[int] = set()
    for node in graph:
        first = node.outputs[0].name or ""
        if node.op_type in _CONVERSIONS:
            _pass_on(node, holder, home)
        if node.op_type in _CONVERSIONS or first not in regions:
            continue
        number = numbers[regions[first]]
        try:
            _count(node, number, counts[number], holder, home, matrices, wide)
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


def _count(
    node: ir.Node,
    number: int,
    count: _Count,
    holder: dict[str, str],
    home: Mapping[str, int],
    matrices: set[str],
    wide: Container[str],
) -> None:
    operands = [value for value in node.inputs if value is not None]
    computed = [value for value in operands if not _is_constant(value)]
    bases = [holder.get(value.name or "", value.name or "") for value in computed]
    for value, base in zip(computed, bases):
        if home.get(value.name or "") != number:
            count.read[base] = _elements(value)
    name, size = node.outputs[0].name or "", _elements(node.outputs[0])
    whole = node.op_type in _WHOLE or node.op_type in _PRODUCTS and len(computed) > 1
    if node.op_type in _PRODUCTS:
        count.weights += sum(_constant_bytes(value) for value in operands if _is_constant(value))
        macs = _macs(node, size)
        count.macs += macs
        count.matrices += macs if whole else 0
    if node.op_type not in _RENAMED and not (node.op_type == "Sigmoid" and in_swish(node)):
        count.operators += _SOFTMAX_PARTS if node.op_type == "Softmax" else 1
    if node.op_type in _VIEWS and bases:
        for value in node.outputs:
            holder[value.name or ""] = bases[0]
        return
    if whole or node.op_type not in _PRODUCTS and any(base in matrices for base in bases):
        in_16_bits = node.op_type == "Softmax" and name in wide
        count.wide += size if in_16_bits else 0
        each = 2 if in_16_bits else 1  # bytes of an element
        moved = [(base, each * _padded(value)) for base, value in zip(bases, computed)]
        moved += [(value.name or "", each * _padded(value)) for value in node.outputs]
        count.whole += moved + (moved[-1:] * _SOFTMAX_MOVES if node.op_type == "Softmax" else [])
        matrices.update(value.name or "" for value in node.outputs)
    elif node.op_type in _ELEMENTWISE and len(set(bases)) == 1 and home.get(bases[0]) == number:
        holder[name] = bases[0]
        count.made[bases[0]] = max(count.made.get(bases[0], 0), _padded(node.outputs[0]))
    else:
        for value in node.outputs:
            count.made[value.name or ""] = _padded(value)


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
            counts[home[name]].written[holder.get(name, name)] = 4 * _padded(
                value, _OUTPUT_CHANNELS, last=_laid_out(value)
            )


def _total(count: _Count) -> SubgraphTraffic:
    held = tuple(size for name, size in count.made.items() if name not in count.written)
    whole = tuple(size for name, size in count.whole if name not in count.written)
    return SubgraphTraffic(
        count.macs,
        count.matrices,
        count.operators,
        count.wide,
        count.weights,
        sum(count.read.values()),
        sum(count.written.values()),
        held,
        whole,
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


def _padded(value: ir.Value, to: int = _CHANNELS, last: bool = False) -> int:
    """Return the number of elements with padded channels: those of an image, or the last axis of three.

    Args:
        value: The value.
        to: The number to whose multiples channels are padded.
        last: Whether the channels of an image are on its last axis.
    """
    extents = _extents(value)
    if len(extents) not in (3, 4):
        return math.prod(extents)
    axis = -1 if last or len(extents) == 3 else 1
    extents[axis] = -(-extents[axis] // to) * to
    return math.prod(extents)


def _laid_out(value: ir.Value) -> bool:
    """Check whether an output is in channels-last layout, which a Transpose gives it."""
    producer = value.producer()
    return producer is not None and producer.op_type == "Transpose"


def _elements(value: ir.Value) -> int:
    return math.prod(_extents(value))


def _extents(value: ir.Value) -> list[int]:
    if value.shape is None or not value.shape.is_static():
        raise _OpenExtentError
    return [int(extent) for extent in _integers(value.shape)]


def _integers(shape: ir.Shape) -> Iterable[int]:
    return (extent for extent in shape.dims if isinstance(extent, int))
