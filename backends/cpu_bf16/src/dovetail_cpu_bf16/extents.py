"""Extents of tensors that integers of a model stand for, alone or multiplied."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import input_of
from dovetail.plugin import is_onnx
from onnx_ir.convenience import get_const_tensor

if TYPE_CHECKING:
    import onnx_ir as ir

_SAME_NUMBER = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_MOST_STEPS = 16


class Axes(NamedTuple):
    """Axes of one tensor, each at most once; an integer that stands for them is the product of their extents."""

    tensor: ir.Value
    axes: frozenset[int]


def axes_of(value: ir.Value | None, steps: int = _MOST_STEPS) -> Axes | None:
    """Return the axes whose extents are multiplied in the single number `value`; None if it is something else.

    Args:
        value: An integer: an element of a Shape, a Size, or a product of these.
        steps: How many nodes may lie between.
    """
    node = value.producer() if value is not None else None
    if node is None or not steps or not is_onnx(node):
        return None
    if node.op_type in _SAME_NUMBER:
        return axes_of(node.inputs[0], steps - 1)
    if node.op_type == "Size":
        return _all_axes(input_of(node, 0))
    if node.op_type == "ReduceProd":
        shape = _shape_node(node.inputs[0])
        return _all_axes(input_of(shape, 0)) if shape is not None and len(_range_of(shape) or ()) else None
    if node.op_type == "Gather":
        return _gathered(node)
    if node.op_type == "Mul":
        one, other = (axes_of(operand, steps // 2) for operand in node.inputs)
        if one and other and one.tensor is other.tensor and not one.axes & other.axes:
            return Axes(one.tensor, one.axes | other.axes)
    return None


def product_of_extents(found: Axes, unknown: float, most: float) -> float:
    """Return the largest product of extents of one tensor.

    Args:
        found: The axes.
        unknown: The extent to assume for an unknown one.
        most: The maximum elements of a tensor.
    """
    shape = found.tensor.shape
    extents = [shape[axis] if shape is not None else None for axis in found.axes]
    if all(isinstance(extent, int) for extent in extents):
        return float(math.prod(int(extent) for extent in extents if isinstance(extent, int)))
    return unknown if len(extents) == 1 else most


def largest_extent(shape_of: ir.Node, unknown: float) -> float:
    """Return the largest element that a Shape node may give."""
    shape, axes = input_of(shape_of, 0).shape, _range_of(shape_of)
    if shape is None or axes is None:
        return unknown
    extents = [shape[axis] for axis in axes]
    return float(max((extent if isinstance(extent, int) else unknown for extent in extents), default=0))


def _gathered(node: ir.Node) -> Axes | None:
    """Return the axis of which a Gather takes the extent from a Shape."""
    shape, position = _shape_node(node.inputs[0]), get_const_tensor(node.inputs[1]) if node.inputs[1] else None
    axes = _range_of(shape) if shape is not None else None
    if shape is None or axes is None or position is None or position.size != 1:
        return None
    index = int(position.numpy().reshape(-1)[0])
    return Axes(input_of(shape, 0), frozenset({axes[index]})) if -len(axes) <= index < len(axes) else None


def _shape_node(value: ir.Value | None) -> ir.Node | None:
    node = value.producer() if value is not None else None
    while node is not None and node.op_type in ("Cast", "Identity") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node if node is not None and node.op_type == "Shape" else None


def _range_of(shape_of: ir.Node) -> range | None:
    """Return the axes whose extents a Shape node gives; None if the rank is unknown."""
    shape = input_of(shape_of, 0).shape
    if shape is None:
        return None
    start, end = shape_of.attributes.get_int("start", 0), shape_of.attributes.get_int("end", len(shape))
    return range(len(shape))[start:end]


def _all_axes(tensor: ir.Value) -> Axes | None:
    return Axes(tensor, frozenset(range(len(tensor.shape)))) if tensor.shape is not None else None
