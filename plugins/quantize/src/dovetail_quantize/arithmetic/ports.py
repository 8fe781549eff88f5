"""What a quantized node reads and computes: integers with their scale, as the conversions around it say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.ir import dtype_name, dtype_of, input_of, shape_of
from dovetail.planning import get_placement
from dovetail_precision.source_quantization import QdqNode, dequantizing, qdq_of

if TYPE_CHECKING:
    pass


class NotIntegerError(Exception):
    """A node computes floats; the message says why, as the end of a sentence about it."""


_BOUNDING = ("Relu", "Clip")


@dataclass(frozen=True, slots=True)
class Integers:
    """Integers, and the real numbers that they stand for: (integer - zero) * scale.

    Attributes:
        value: The integers.
        dtype: Their element type.
        scale: One scale, or one per index along `axis`; float32 numbers, held in float64.
        zero: As many zero points.
        axis: The axis along which scales differ, counted from 0; None for a single scale.
    """

    value: ir.Value
    dtype: ir.DataType
    scale: np.ndarray
    zero: np.ndarray
    axis: int | None

    @classmethod
    def of(cls, qdq: QdqNode) -> Integers | None:
        """The integers at a conversion; None if scales differ by group."""
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
        """The numbers of a weight; None for values that are computed or given."""
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
        """No integer is further than this from its zero point."""
        return max(self.high - int(self.zero.min()), int(self.zero.max()) - self.low)

    def one_scale(self) -> tuple[float, int]:
        """Its only scale and zero point.

        Raises:
            NotIntegerError: There are several.
        """
        if self.scale.size > 1:
            raise NotIntegerError(f"'{self.value.name}' has a scale per channel")
        return float(self.scale[0]), int(self.zero[0])

    def same_numbers(self, other: Integers) -> bool:
        """Whether equal integers of both stand for equal numbers."""
        return self.dtype == other.dtype and self.one_scale() == other.one_scale()


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a node.

    Attributes:
        value: The value that the node computes in the graph; behind a fused activation, that one's result.
        quantize: The QuantizeLinear that alone reads it; None if it is read as it is.
        held: What the integers stand for; None without a QuantizeLinear.
        activation: The Relu or Clip that is computed together with the node, or None.
    """

    value: ir.Value
    quantize: ir.Node | None = None
    held: Integers | None = None
    activation: ir.Node | None = None


class IntegerResult(NamedTuple):
    """What the integers of a result stand for, and the activation that is computed together with the node, or None."""

    held: Integers
    activation: ir.Node | None


def known_extents(value: ir.Value) -> list[int]:
    """The extents of a value behind its batch.

    Raises:
        NotIntegerError: One is not known.
    """
    extents = [] if value.shape is None else [extent for extent in value.shape[1:] if isinstance(extent, int)]
    if value.shape is None or len(extents) < len(value.shape) - 1:
        raise NotIntegerError("the extents of its input are not known before it runs")
    return extents


def integers_of(value: ir.Value | None) -> Integers | None:
    """The integers that a value stands for; None if it is not dequantized with constant parameters."""
    qdq = dequantizing(value) if value is not None else None
    return Integers.of(qdq) if qdq is not None else None


def results_of(node: ir.Node) -> list[Result]:
    """The results of a node, with what quantizes each."""
    return [_result(value, node) for value in node.outputs]


def _result(value: ir.Value, node: ir.Node) -> Result:
    reader = _only_reader(value)
    if reader is None:
        return Result(value)
    if _is(reader, "QuantizeLinear"):
        return _quantized(value, reader)
    if any(_is(reader, name) for name in _BOUNDING) and len(node.outputs) == 1 and _same_backend(node, reader):
        behind = _only_reader(reader.outputs[0])
        if behind is not None and _is(behind, "QuantizeLinear"):
            return _quantized(reader.outputs[0], behind, reader)
    return Result(value)


def _quantized(value: ir.Value, quantize: ir.Node, activation: ir.Node | None = None) -> Result:
    qdq = qdq_of(quantize)
    held = Integers.of(qdq) if qdq is not None and qdq.floats is value else None
    if held is None:
        return Result(input_of(activation, 0) if activation is not None else value)
    return Result(value, quantize, held, activation)


def _only_reader(value: ir.Value) -> ir.Node | None:
    uses = value.uses()
    return next(iter(uses))[0] if len(uses) == 1 and not value.is_graph_output() else None


def _is(node: ir.Node, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in ("", "ai.onnx")


def _same_backend(node: ir.Node, other: ir.Node) -> bool:
    one, two = get_placement(node), get_placement(other)
    return one is not None and two is not None and one.backend == two.backend
