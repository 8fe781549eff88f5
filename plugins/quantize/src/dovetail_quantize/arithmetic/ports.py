"""Ports of a quantized node: integers with the scales of the surrounding conversions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.ir import dtype_name, dtype_of, input_of, is_onnx, shape_of
from dovetail.planning import get_placement
from dovetail_placement.source_scales import QdqNode, dequantizing, qdq_of


class NotIntegerError(Exception):
    """Raised where a node must compute in floats; the message gives the reason, as the end of a sentence."""


_BOUNDING = ("Relu", "Clip")


@dataclass(frozen=True, slots=True)
class Integers:
    """Quantized integers; each represents the real number (integer - zero) * scale.

    Attributes:
        value: The value that holds the integers.
        dtype: Their element type.
        scale: One scale, or one per index along `axis`; float32 numbers, held in float64.
        zero: One zero point per scale.
        axis: The axis along which scales differ, counted from 0; None for a single scale.
    """

    value: ir.Value
    dtype: ir.DataType
    scale: np.ndarray
    zero: np.ndarray
    axis: int | None

    @classmethod
    def of(cls, qdq: QdqNode) -> Integers | None:
        """Return the integers of a conversion; None if it has one scale per group."""
        if qdq.group is not None:
            return None
        axis = qdq.axis
        if axis is not None:
            axis %= len(qdq.integers.shape or shape_of(qdq.floats))
        scale, zero = qdq.parameters
        value = qdq.integers
        return cls(value, dtype_of(value), np.asarray(scale, np.float64), np.asarray(zero, np.int64), axis)

    @property
    def tensor(self) -> ir.TensorProtocol | None:
        """The constant tensor of a weight; None for values that are not constants."""
        value = self.value
        return value.const_value if value.is_initializer() and not value.is_graph_input() else None

    @property
    def low(self) -> int:
        """The smallest integer of the type."""
        return 0 if dtype_name(self.dtype).startswith("u") else -(1 << (self.dtype.bitwidth - 1))

    @property
    def high(self) -> int:
        """The largest integer of the type."""
        return self.low + (1 << self.dtype.bitwidth) - 1

    @property
    def largest(self) -> int:
        """Largest distance of an integer of the type from its zero point."""
        return max(self.high - int(self.zero.min()), int(self.zero.max()) - self.low)

    def one_scale(self) -> tuple[float, int]:
        """Return the scale and zero point of a per-tensor format.

        Raises:
            NotIntegerError: There are several scales.
        """
        if self.scale.size > 1:
            raise NotIntegerError(f"'{self.value.name}' has a scale per channel")
        return float(self.scale[0]), int(self.zero[0])

    def same_numbers(self, other: Integers) -> bool:
        """Check whether equal integers of both represent equal numbers."""
        return self.dtype == other.dtype and self.one_scale() == other.one_scale()


@dataclass(frozen=True, slots=True)
class QuantizedResult:
    """A result of a quantized node.

    Attributes:
        value: The result in the graph; that of the fused activation if there is one.
        quantize: The QuantizeLinear that is its only reader; None if it is read as floats.
        held: The integers after the QuantizeLinear; None without one.
        activation: The Relu or Clip that is fused with the node, or None.
    """

    value: ir.Value
    quantize: ir.Node | None = None
    held: Integers | None = None
    activation: ir.Node | None = None


class IntegerResult(NamedTuple):
    """Integers of a result, and the Relu or Clip fused with the node, or None."""

    held: Integers
    activation: ir.Node | None


def known_extents(value: ir.Value) -> list[int]:
    """Return the extents of a value without its batch axis.

    Raises:
        NotIntegerError: An extent is unknown.
    """
    extents = [] if value.shape is None else [extent for extent in value.shape[1:] if isinstance(extent, int)]
    if value.shape is None or len(extents) < len(value.shape) - 1:
        raise NotIntegerError("the extents of its input are not known before it runs")
    return extents


def integers_of(value: ir.Value | None) -> Integers | None:
    """Return the integers that a value dequantizes; None unless its parameters are constant."""
    qdq = dequantizing(value) if value is not None else None
    return Integers.of(qdq) if qdq is not None else None


def results_of(node: ir.Node) -> list[QuantizedResult]:
    """Return the results of a node, each with its QuantizeLinear."""
    return [_result(value, node) for value in node.outputs]


def _result(value: ir.Value, node: ir.Node) -> QuantizedResult:
    reader = _only_reader(value)
    if reader is None:
        return QuantizedResult(value)
    if _is(reader, "QuantizeLinear"):
        return _quantized(value, reader)
    if any(_is(reader, name) for name in _BOUNDING) and len(node.outputs) == 1 and _same_backend(node, reader):
        behind = _only_reader(reader.outputs[0])
        if behind is not None and _is(behind, "QuantizeLinear"):
            return _quantized(reader.outputs[0], behind, reader)
    return QuantizedResult(value)


def _quantized(value: ir.Value, quantize: ir.Node, activation: ir.Node | None = None) -> QuantizedResult:
    qdq = qdq_of(quantize)
    held = Integers.of(qdq) if qdq is not None and qdq.floats is value else None
    if held is None:
        return QuantizedResult(input_of(activation, 0) if activation is not None else value)
    return QuantizedResult(value, quantize, held, activation)


def _only_reader(value: ir.Value) -> ir.Node | None:
    uses = value.uses()
    return next(iter(uses))[0] if len(uses) == 1 and not value.is_graph_output() else None


def _is(node: ir.Node, op_type: str) -> bool:
    return node.op_type == op_type and is_onnx(node)


def _same_backend(node: ir.Node, other: ir.Node) -> bool:
    one, two = get_placement(node), get_placement(other)
    return one is not None and two is not None and one.backend == two.backend
