"""Facts of nodes that the limits of `bpu-int8` use; None where something is not known before run time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "changed_extents",
    "first_extent",
    "largest_batch_extent",
    "largest_extent",
    "largest_matrix_extent",
    "reduced_extent",
    "residual_add",
    "same_ranks",
    "uneven_parts",
    "zeros",
]

_LARGEST_READ = 1 << 20  # elements of a constant that are looked at


def residual_add(node: ir.Node) -> bool:
    """Whether an Add of two computed values alone reads the result: the toolchain fuses it into the convolution."""
    uses = node.outputs[0].uses()
    if len(uses) != 1 or node.outputs[0].is_graph_output():
        return False
    reader = next(iter(uses))[0]
    return reader.op_type == "Add" and all(
        value is not None and value.producer() is not None and value.const_value is None for value in reader.inputs
    )


def zeros(node: ir.Node) -> int:
    """How many zeros the constant operands have; those of a large constant count as none."""
    return sum(int(np.count_nonzero(array == 0)) for array in map(_constant, node.inputs) if array is not None)


def first_extent(node: ir.Node) -> int | None:
    """The first extent of the first input; 1 for a scalar."""
    extents = _extents(node.inputs[0])
    return None if extents is None else extents[0] if extents else 1


def largest_extent(node: ir.Node) -> int | None:
    """The largest of the other extents of the first input; 1 if there are none."""
    extents = _extents(node.inputs[0])
    return None if extents is None else max(extents[1:], default=1)


def same_ranks(node: ir.Node) -> bool | None:
    """Whether all inputs have as many axes."""
    shapes = [None if value is None else value.shape for value in node.inputs]
    return None if any(shape is None for shape in shapes) else len({len(shape) for shape in shapes}) == 1


def largest_matrix_extent(node: ir.Node) -> int | None:
    """The largest extent of the matrices that a product multiplies."""
    return _largest(node.inputs[:2], slice(-2, None))


def largest_batch_extent(node: ir.Node) -> int | None:
    """The largest extent in front of the matrices that a product multiplies; 1 if there are none."""
    return _largest(node.inputs[:2], slice(None, -2))


def changed_extents(node: ir.Node) -> int | None:
    """How many extents of the result differ from those of the first input, aligned at the last one."""
    before, after = _extents(node.inputs[0]), _extents(node.outputs[0])
    if before is None or after is None or len(after) < len(before):
        return None
    return sum(one != other for one, other in zip([1] * (len(after) - len(before)) + before, after, strict=True))


def uneven_parts(node: ir.Node) -> int | None:
    """By how much the largest part of a Split exceeds the smallest."""
    before = _extents(node.inputs[0])
    parts = [_extents(value) for value in node.outputs]
    if before is None or any(part is None or len(part) != len(before) for part in parts):
        return None
    along = [max(extents) - min(extents) for extents in zip(*parts, strict=True)]
    return max(along, default=0)


def reduced_extent(node: ir.Node) -> int | None:
    """The number of elements that each element of the result is reduced from."""
    before, after = _extents(node.inputs[0]), _extents(node.outputs[0])
    if before is None or after is None:
        return None
    return int(np.prod(before, dtype=np.int64)) // max(int(np.prod(after, dtype=np.int64)), 1)


def _largest(values: Iterable[ir.Value | None], part: slice) -> int | None:
    shapes = [_extents(value) for value in values]
    if any(shape is None for shape in shapes):
        return None
    return max((extent for shape in shapes for extent in shape[part]), default=1)


def _extents(value: ir.Value | None) -> list[int] | None:
    if value is None or value.shape is None or not all(isinstance(extent, int) for extent in value.shape):
        return None
    return list(value.shape)


def _constant(value: ir.Value | None) -> np.ndarray | None:
    if value is None or not value.is_initializer() or value.is_graph_input() or value.const_value is None:
        return None
    return value.const_value.numpy() if value.const_value.size <= _LARGEST_READ else None
