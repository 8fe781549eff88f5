"""Bounds of 64-bit integers, derived from their producers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of, input_of
from dovetail_precision.ranges.interval_arithmetic import integer_interval, is_integer
from dovetail_precision.ranges.range import Range

if TYPE_CHECKING:
    import onnx_ir as ir


# An axis of this many floats takes 4 GB; unknown extents count as this.
_LARGEST_EXTENT = 2.0**30
_MAX_ELEMENTS = 4096
"""Largest constant that is read; larger ones are not extents or offsets."""
_MAX_NODES = 32
"""Nodes visited per value, which keeps the cost of facts linear in the model's size."""
_INDICES = frozenset({"ArgMax", "ArgMin", "NonZero"})
_COUNTS = frozenset({"CumSum", "ReduceSum"})
_UNKNOWN = Range(-math.inf, math.inf)


def fits_32_bits(value: ir.Value) -> bool:
    """Check whether all elements of the integer `value` provably fit in 32 bits.

    Indices, extents, comparisons and narrower integers are bounded, and so are results of selection, data movement and
    arithmetic on them. Model inputs are not.
    """
    return _fits(bounds_of(value))


def bounds_of(value: ir.Value) -> Range:
    """Return the interval of the integer `value`; infinite where nothing bounds it."""
    return _Bounds().of(value)


def _fits(found: Range) -> bool:
    return found.low >= -(2.0**31) and found.high < 2.0**31


class _Bounds:
    """Bounds of a value and of the values it is computed from."""

    def __init__(self) -> None:
        self._known: dict[int, Range] = {}
        self._left = _MAX_NODES

    def of(self, value: ir.Value | None) -> Range:
        """Return the interval of `value`."""
        if value is None:
            return _UNKNOWN
        if id(value) not in self._known:
            self._known[id(value)] = _UNKNOWN  # breaks cycles in graphs that are not sorted
            self._known[id(value)] = self._computed(value)
        return self._known[id(value)]

    def _computed(self, value: ir.Value) -> Range:
        if value.const_value is not None and value.producer() is None and not value.is_graph_input():
            return _of_constant(value.const_value)
        typed = _of_type(value)
        node = value.producer()
        self._left -= 1
        if typed is not _UNKNOWN or node is None or self._left < 0 or node.domain not in ("", "ai.onnx"):
            return typed
        return self._of_node(node, value)

    def _of_node(self, node: ir.Node, value: ir.Value) -> Range:
        operator, inputs = node.op_type, node.inputs
        if operator == "Constant":
            return _UNKNOWN if value.const_value is None else _of_constant(value.const_value)
        if operator in _INDICES or operator == "TopK" and value is node.outputs[1]:
            return Range(0.0, _LARGEST_EXTENT - 1)
        if operator == "Shape":
            return Range(0.0, _LARGEST_EXTENT)
        if operator == "Range":  # from the first input towards the second, in steps of either sign
            start, limit = map(self.of, inputs[:2])
            return Range(min(start.low, limit.low), max(start.high, limit.high))
        if operator in ("Cast", "CastLike"):
            return self.of(inputs[0]) if is_integer(inputs[0]) else _UNKNOWN
        if operator in _COUNTS:
            terms = self.of(inputs[0])
            count = _elements(input_of(node, 0))
            return Range(min(terms.low, 0.0) * count, max(terms.high, 0.0) * count)
        if operator == "Mod" and not node.attributes.get_int("fmod", 0):
            divisor = self.of(inputs[1])
            # The result has the sign of the divisor and is smaller.
            return Range(min(divisor.low + 1, 0.0), max(divisor.high - 1, 0.0))
        if operator == "Div":
            return self._quotient(self.of(inputs[0]), self.of(inputs[1]))
        if not is_integer(node.outputs[0]) or value is not node.outputs[0] and operator != "Split":
            return _UNKNOWN
        found = integer_interval(node, self.of)
        # A result that exceeds 32 bits, or an unsigned type, has wrapped around.
        wrapped = not _fits(found) or found.low < 0 and dtype_of(value).name == "UINT64"
        return _UNKNOWN if wrapped else found

    @staticmethod
    def _quotient(dividend: Range, divisor: Range) -> Range:
        if divisor.low < 1:
            return _UNKNOWN
        return Range(min(dividend.low, 0.0), max(dividend.high, 0.0))


def _of_type(value: ir.Value) -> Range:
    dtype = value.dtype
    if dtype is None or not is_integer(value):
        return _UNKNOWN
    if dtype.name == "BOOL":
        return Range(0.0, 1.0)
    if dtype.name.startswith("UINT"):
        return Range(0.0, 2.0**dtype.bitwidth - 1) if dtype.bitwidth < 32 else _UNKNOWN
    return Range(-(2.0 ** (dtype.bitwidth - 1)), 2.0 ** (dtype.bitwidth - 1) - 1) if dtype.bitwidth <= 32 else _UNKNOWN


def _of_constant(tensor: ir.TensorProtocol) -> Range:
    if tensor.size > _MAX_ELEMENTS or not (tensor.dtype.is_integer() or tensor.dtype.name == "BOOL"):
        return _UNKNOWN
    elements = [int(number) for number in tensor.numpy().reshape(-1)]
    return Range(float(min(elements, default=0)), float(max(elements, default=0)))


def _elements(value: ir.Value) -> float:
    """Return the number of elements of `value`, an upper bound of the terms of a sum."""
    if value.shape is None or not value.shape.is_static():
        return _LARGEST_EXTENT
    return float(math.prod(value.shape.numpy()))
