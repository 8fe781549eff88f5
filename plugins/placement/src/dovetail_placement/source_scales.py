"""The source model's own quantization: its QDQ nodes, and the scales that values had before these were lifted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.ir import dtype_name, dtype_of, input_of, is_onnx
from dovetail.planning import Parameters

if TYPE_CHECKING:
    from dovetail.ir import Format


_LIFTED = "dovetail.source_scale"

_QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})


class SourceScale(NamedTuple):
    """How the source model holds a value in integers.

    Attributes:
        element: The element type of the integers.
        parameters: Scales and zero points.
        axis: The axis along which scales differ; None for a single scale.
        group: The number of elements along the axis that share a scale; None for one scale per index.
        integers: The integers of a weight; None for any other value.
    """

    element: str
    parameters: Parameters
    axis: int | None
    group: int | None
    integers: ir.TensorProtocol | None = None

    def bounds(self) -> tuple[float, float]:
        """Return the smallest and the largest number that integers of a single scale stand for."""
        bits = ir.DataType[self.element.upper()].bitwidth
        smallest = 0 if self.element.startswith("u") else -(1 << (bits - 1))
        (scale,), (zero,) = self.parameters
        return (smallest - zero) * scale, (smallest + (1 << bits) - 1 - zero) * scale

    def parameters_in(self, format_: Format, value: ir.Value) -> Parameters | None:
        """Return the parameters with which a format has the same numbers; None if it has not all of them.

        Integers with and without a sign stand for the same numbers if their zero points differ by half of them. A
        single scale also fits formats with several scales.
        """
        element, zeros = self.element, self.parameters.zero_point
        if format_.element != element:
            if format_.element.removeprefix("u") != element.removeprefix("u"):
                return None
            middle = 1 << (format_.dtype.bitwidth - 1)
            zeros = tuple(zero + (middle if format_.element.startswith("u") else -middle) for zero in zeros)
        if dtype_name(value.dtype) != format_.expressed or not self._has_scheme(format_, zeros):
            return None
        found = Parameters(self.parameters.scale, zeros)
        if self.axis is None:
            return found
        rank = None if value.shape is None else len(value.shape)
        if format_.axis is None or format_.group != self.group or rank is None:
            return None
        return found if format_.axis % rank == self.axis % rank else None

    def _has_scheme(self, format_: Format, zeros: tuple[int, ...]) -> bool:
        if format_.scheme == "asymmetric":
            return True
        middle = 1 << (format_.dtype.bitwidth - 1) if format_.element.startswith("u") else 0
        if any(zero != middle for zero in zeros):
            return False
        return format_.scheme == "symmetric" or all(math.frexp(scale)[0] == 0.5 for scale in self.parameters.scale)


@dataclass(frozen=True, slots=True)
class QdqNode:
    """A conversion between floats and integers whose parameters are constants.

    Attributes:
        node: The QuantizeLinear or DequantizeLinear.
        scale: The element type of the integers, with scales and zero points.
    """

    node: ir.Node
    scale: SourceScale

    @property
    def element(self) -> str:
        """The element type of the integers."""
        return self.scale.element

    @property
    def parameters(self) -> Parameters:
        """Scales and zero points."""
        return self.scale.parameters

    @property
    def axis(self) -> int | None:
        """The axis along which scales differ; None for a single scale."""
        return self.scale.axis

    @property
    def group(self) -> int | None:
        """The number of elements along the axis that share a scale; None for one scale per index."""
        return self.scale.group

    @property
    def integers(self) -> ir.Value:
        """The integer value."""
        return input_of(self.node, 0) if self.node.op_type == "DequantizeLinear" else self.node.outputs[0]

    @property
    def floats(self) -> ir.Value:
        """The float value."""
        return self.node.outputs[0] if self.node.op_type == "DequantizeLinear" else input_of(self.node, 0)

    def fits(self, format_: Format) -> bool:
        """Check whether its integers are valid in that format; a single scale also fits formats with several scales."""
        return format_.element == self.element and self.scale.parameters_in(format_, self.floats) is not None


def is_qdq(node: ir.Node) -> bool:
    """Check whether a node converts between floats and integers of one scale, constant or not."""
    return node.op_type in _QDQ and is_onnx(node)


def qdq_of(node: ir.Node | None) -> QdqNode | None:
    """Return a node as a QDQ node; None if it is not one, or if its parameters are known only at run time."""
    if node is None or not is_qdq(node) or len(node.inputs) < 2:
        return None
    scale = _constant(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    zero = _constant(given) if given is not None else None
    integers = node.inputs[0] if node.op_type == "DequantizeLinear" else node.outputs[0]
    if scale is None or given is not None and zero is None or integers is None or integers.dtype is None:
        return None
    numbers = np.asarray(scale, np.float64).reshape(-1)
    if not (np.isfinite(numbers).all() and (numbers > 0).all()):
        return None
    zeros = np.zeros(numbers.shape, np.int64) if zero is None else np.asarray(zero).astype(np.int64).reshape(-1)
    if zeros.shape != numbers.shape:
        return None
    several, group = numbers.size > 1, node.attributes.get_int("block_size", 0) or None
    parameters = Parameters(tuple(numbers.tolist()), tuple(int(one) for one in zeros))
    axis = node.attributes.get_int("axis", 1) if several else None
    held = integers.const_value if integers.is_initializer() and not integers.is_graph_input() else None
    return QdqNode(node, SourceScale(dtype_name(integers.dtype), parameters, axis, group if several else None, held))


def dequantizing(value: ir.Value) -> QdqNode | None:
    """Return the QDQ node that computes a value from integers; None if there is none."""
    producer = value.producer()
    return qdq_of(producer) if producer is not None and producer.op_type == "DequantizeLinear" else None


def quantizing(value: ir.Value) -> Iterator[QdqNode]:
    """Yield the QDQ nodes that quantize a value."""
    for node, index in value.uses():
        if index == 0 and node.op_type == "QuantizeLinear":
            qdq = qdq_of(node)
            if qdq is not None:
                yield qdq


def weight_of(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of a weight: an initializer, or an integer weight of the source model; else None."""
    if value.is_initializer():
        return None if value.is_graph_input() else value.const_value
    qdq = dequantizing(value)
    return None if qdq is None or qdq.scale.integers is None else dequantized(qdq.scale, value)


def dequantized(scale: SourceScale, value: ir.Value) -> ir.LazyTensor:
    """Return the numbers that the integers of a weight stand for, computed when they are read."""
    integers, dtype = scale.integers, dtype_of(value)
    assert integers is not None, "the integers of a weight are constant"
    return ir.LazyTensor(
        lambda: ir.Tensor(_floats_of(integers.numpy(), scale).astype(dtype.numpy())),
        dtype,
        ir.Shape(integers.shape.numpy()),
        name=value.name,
    )


def _floats_of(integers: np.ndarray, known: SourceScale) -> np.ndarray:
    scale, zero = (_shaped(numbers, known, integers.shape) for numbers in known.parameters)
    return (integers.astype(np.float32) - zero) * scale


def _shaped(numbers: tuple, known: SourceScale, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(numbers, np.float32)
    if known.axis is None:
        return array.reshape(())
    axis = known.axis % len(shape)
    if known.group is None:
        return array.reshape([-1 if index == axis else 1 for index in range(len(shape))])
    whole = list(shape)
    whole[axis] = -(-whole[axis] // known.group)
    repeated = np.repeat(array.reshape(whole), known.group, axis=axis)
    return np.take(repeated, np.arange(shape[axis]), axis=axis)


def lifted_scale(value: ir.Value) -> SourceScale | None:
    """Return the scale that a value had in the source model, where its conversions were lifted from the graph."""
    return value.meta.data.get(_LIFTED)


def lifted_values(graph: ir.Graph) -> list[tuple[ir.Value, SourceScale]]:
    """Return the values of a graph whose conversions were lifted from it, each with the scale that these had."""
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    return [(value, scale) for value in values if (scale := lifted_scale(value)) is not None]


def set_lifted_scale(value: ir.Value, scale: SourceScale) -> None:
    """Let a value have the scale of conversions that leave the graph."""
    value.meta[_LIFTED] = scale


def _constant(value: ir.Value | None) -> np.ndarray | None:
    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return value.const_value.numpy()
