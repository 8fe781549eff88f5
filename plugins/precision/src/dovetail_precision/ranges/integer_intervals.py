"""Intervals of integers, from their types, extents, and the depth of integer products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail_precision.ranges.interval_arithmetic import ARITHMETIC, MERGING, MOVEMENT, UNKNOWN, extreme
from dovetail_precision.ranges.range import Range

if TYPE_CHECKING:
    import onnx_ir as ir


_WIDE = 32  # types of this width and more count as unbounded
_KEPT = frozenset({"Abs", "Add", "Clip", "Mul", "Neg", "Relu", "Sub"})
_PRODUCTS = {"ConvInteger": 1, "MatMulInteger": 0}


def is_integer(value: ir.Value | None) -> bool:
    """Whether `value` has an integer or boolean type."""
    dtype = value.dtype if value is not None else None
    return dtype is not None and (dtype.is_integer() or dtype.name == "BOOL")


def of_type(value: ir.Value) -> Range:
    """Return the range of the element type of an integer value."""
    dtype = value.dtype
    assert dtype is not None
    if dtype.name == "BOOL":
        return Range(0.0, 1.0)
    if dtype.bitwidth >= _WIDE:
        return UNKNOWN
    if dtype.name.startswith("UINT"):
        return Range(0.0, 2.0**dtype.bitwidth - 1)
    return Range(-(2.0 ** (dtype.bitwidth - 1)), 2.0 ** (dtype.bitwidth - 1) - 1)


def integer_interval(node: ir.Node, of: Callable[[ir.Value | None], Range]) -> Range:
    """Return the interval of the first output of `node`, an integer.

    Args:
        node: The node.
        of: Returns the interval of an input.
    """
    result = node.outputs[0]
    found = _computed(node, of)
    typed = of_type(result)
    if not typed.bounded:
        return found
    # Overflow wraps around, so the result may be anywhere in the type.
    return found if typed.low <= found.low and found.high <= typed.high else typed


def _computed(node: ir.Node, of: Callable[[ir.Value | None], Range]) -> Range:
    operator, inputs = node.op_type, node.inputs
    if operator == "Shape":
        return _largest_extent(inputs[0])
    if operator in ("ArgMax", "ArgMin"):
        return index_interval(inputs[0], node.attributes.get_int("axis", 0))
    if operator == "Size":
        return _elements(inputs[0])
    if operator in _PRODUCTS:
        return _product(node, of)
    if operator in MOVEMENT and operator != "ReduceMean":
        return of(inputs[0])
    if operator in MERGING:
        merged = [of(value) for value in (inputs[1:] if operator == "Where" else inputs)]
        return extreme(operator, merged)
    if operator in _KEPT and all(value is None or is_integer(value) for value in inputs):
        return ARITHMETIC[operator](*map(of, inputs))
    return UNKNOWN


def _largest_extent(value: ir.Value | None) -> Range:
    shape = value.shape if value is not None else None
    if shape is None or not shape.is_static():
        return Range(0.0, math.inf)
    return Range(0.0, float(max(shape.numpy(), default=0)))


def _elements(value: ir.Value | None) -> Range:
    shape = value.shape if value is not None else None
    if shape is None or not shape.is_static():
        return Range(0.0, math.inf)
    number = float(math.prod(shape.numpy()))
    return Range(number, number)


def index_interval(value: ir.Value | None, axis: int) -> Range:
    """Return the interval of indices along an axis of `value`."""
    return Range(0.0, max(_extent(value, axis) - 1, 0.0))


def _extent(value: ir.Value | None, axis: int) -> float:
    shape = value.shape if value is not None else None
    if shape is None or not -len(shape) <= axis < len(shape):
        return math.inf
    extent = shape[axis]
    return float(extent) if isinstance(extent, int) else math.inf


def _product(node: ir.Node, of: Callable[[ir.Value | None], Range]) -> Range:
    """Return the interval of an 8-bit product: depth of the weights times the largest products without zero points."""
    weights = node.inputs[1]
    shape = weights.shape if weights is not None else None
    if shape is None or not shape.is_static() or len(shape) < 2:
        return UNKNOWN
    extents = shape.numpy()
    depth = math.prod(extents[1:]) if _PRODUCTS[node.op_type] else extents[-2]
    reached = float(depth)
    for value, zero in zip(node.inputs[:2], (*node.inputs[2:4], None, None), strict=False):
        known = of(value)
        if zero is not None:
            known = ARITHMETIC["Sub"](known, of(zero))
        reached *= known.magnitude
    return Range(-reached, reached)
