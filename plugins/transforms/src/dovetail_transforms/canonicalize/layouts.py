"""Operators that compute the same in any order of axes, and their form in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.ir import is_onnx

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

Order = tuple[int, ...]
"""The attribute `perm` of a Transpose: axis i of its result is axis order[i] of its input."""

ELEMENTWISE = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Celu", "Clip", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu",
    "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Less", "LessOrEqual", "Log",
    "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "PRelu", "Reciprocal", "Relu", "Round",
    "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu", "Where", "Xor",
})  # fmt: skip
_REDUCTIONS = frozenset({
    "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
})  # fmt: skip
_LARGEST = 1 << 16  # elements of a constant that is transposed here


def inverse(order: Order) -> Order:
    """Return the order that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def order_of(node: ir.Node | None) -> Order | None:
    """Return the order of a Transpose with an explicit one; None for any other node."""
    if node is None or node.op_type != "Transpose" or not is_onnx(node):
        return None
    order = node.attributes.get("perm")
    return tuple(order.as_ints()) if order is not None else None


def data_inputs(node: ir.Node, overridable: set[int]) -> list[ir.Value] | None:
    """Return the inputs that are reordered with the result; None if the node depends on the order of axes.

    Such a node has one result, and its inputs are of the same rank as that, or constants that can be transposed.
    """
    rank = _rank(node.outputs[0]) if len(node.outputs) == 1 else None
    if not is_onnx(node) or rank is None or rank < 2 or node.attributes.get("body") is not None:
        return None
    inputs = [value for value in node.inputs if value is not None]
    if node.op_type in ELEMENTWISE:
        found = [value for value in inputs if not is_movable(value, rank, overridable)]
    elif node.op_type == "Concat":
        found = inputs
    elif _has_known_axes(node, overridable):
        found = inputs[:1]
    else:
        return None
    return found if found and all(_rank(value) == rank for value in found) else None


def is_movable(value: ir.Value, rank: int, overridable: set[int]) -> bool:
    """Check whether a value is a small constant that a result of `rank` is broadcast with."""
    tensor = value.const_value if value.is_initializer() and id(value) not in overridable else None
    return tensor is not None and tensor.size <= _LARGEST and len(tensor.shape) <= rank


def moved_constant(array: np.ndarray, order: Order) -> np.ndarray:
    """Return a constant in the form that broadcasts with a value once `order` is undone; a single element stays."""
    if array.size == 1:
        return array
    whole = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
    return whole.transpose(inverse(order)).copy()


def moved_axes(axes: Sequence[int], order: Order) -> list[int]:
    """Return where axes of a result of `order` are before it."""
    return [order[axis % len(order)] for axis in axes]


def moved_pads(pads: Sequence[int], order: Order) -> list[int]:
    """Return the pads before `order`: starts of all axes, then ends."""
    rank = len(order)
    found = [0] * (2 * rank)
    for axis, before in enumerate(order):
        found[before], found[before + rank] = pads[axis], pads[axis + rank]
    return found


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else len(value.shape)


def _has_known_axes(node: ir.Node, overridable: set[int]) -> bool:
    """Check whether a node is a Pad of all axes, or a reduction that keeps its axes, by constants."""
    value = node.inputs[1] if len(node.inputs) > 1 else None
    if value is None or not value.is_initializer() or id(value) in overridable:
        return False
    if node.op_type == "Pad":
        return len(node.inputs) < 4 or node.inputs[3] is None
    return node.op_type in _REDUCTIONS and bool(node.attributes.get_int("keepdims", 1))
