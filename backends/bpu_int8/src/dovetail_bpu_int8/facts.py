"""Facts of nodes that the limits of `bpu-int8` use; None where something is not known before run time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import input_of

if TYPE_CHECKING:
    import onnx_ir as ir


def extents_of(value: ir.Value | None) -> list[int] | None:
    """The extents of a value; None if there is no value, or one of them is not known before run time."""
    shape = None if value is None else value.shape
    return list(shape.numpy()) if shape is not None and all(isinstance(extent, int) for extent in shape) else None


def all_extents(node: ir.Node) -> list[list[int]] | None:
    """The extents of the floats that a node reads and gives, without constants; None if one is not known."""
    read = [value for value in node.inputs if value is not None and value.const_value is None]
    floats = [value for value in (*read, *node.outputs) if _holds_floats(value)]
    shapes = [shape for value in floats if (shape := extents_of(value)) is not None]
    return shapes if len(shapes) == len(floats) else None


def product(extents: Sequence[int]) -> int:
    """The number of elements of a tensor with these extents."""
    return math.prod(extents)


def _holds_floats(value: ir.Value) -> bool:
    return bool(value.name) and value.dtype is not None and value.dtype.is_floating_point()


_LARGEST_READ = 1 << 20  # elements of a constant that are looked at
_CHANNELS_LAST, _CONVOLUTIONS = (0, 2, 3, 1), ("Conv", "ConvTranspose")
_FLATTENING = ("Flatten", "Reshape")


def residual_add(node: ir.Node) -> bool:
    """Whether an Add of two computed values alone reads the result: the toolchain fuses it into the convolution."""
    uses = node.outputs[0].uses()
    if len(uses) != 1 or node.outputs[0].is_graph_output():
        return False
    reader = next(iter(uses))[0]
    return reader.op_type == "Add" and all(
        value is not None and value.producer() is not None and value.const_value is None for value in reader.inputs
    )


def operands(node: ir.Node) -> int:
    """How many inputs the node has."""
    return sum(value is not None for value in node.inputs)


def not_computed(node: ir.Node) -> int:
    """How many inputs no node computes: constants and inputs of the model."""
    return sum(value is not None and value.producer() is None for value in node.inputs)


def zeros(node: ir.Node) -> int:
    """How many zeros the constant operands have; those of a large constant count as none."""
    return sum(int(np.count_nonzero(array == 0)) for array in map(_constant, node.inputs) if array is not None)


def second_size(node: ir.Node) -> int | None:
    """How many elements the second input has."""
    extents = extents_of(node.inputs[1])
    return None if extents is None else product(extents)


def first_extent(node: ir.Node) -> int | None:
    """The largest first extent of what the node computes with: floats that are no constants; 1 for scalars."""
    shapes = all_extents(node)
    return None if shapes is None else max((extents[0] for extents in shapes if extents), default=1)


def largest_extent(node: ir.Node) -> int | None:
    """The largest of their other extents; 1 if there are none."""
    shapes = all_extents(node)
    return None if shapes is None else max((extent for extents in shapes for extent in extents[1:]), default=1)


def largest_size(node: ir.Node) -> int | None:
    """The bytes of the largest of them in int8."""
    shapes = all_extents(node)
    return None if shapes is None else max(map(product, shapes), default=1)


def image_channels(node: ir.Node) -> int | None:
    """The channels of the image that a Gemm reads: before a Flatten, else all that it multiplies."""
    image = _image(node)
    return None if image is None else image[0]


def image_height(node: ir.Node) -> int | None:
    """The rows of the image that a Gemm reads: 1 if it reads no flattened image."""
    image = _image(node)
    return None if image is None else image[1]


def image_width(node: ir.Node) -> int | None:
    """The columns of the image that a Gemm reads: 1 if it reads no flattened image."""
    image = _image(node)
    return None if image is None else image[2]


def same_ranks(node: ir.Node) -> bool | None:
    """Whether all inputs have as many axes."""
    shapes = [value.shape for value in node.inputs if value is not None and value.shape is not None]
    return None if len(shapes) < len(node.inputs) else len(set(map(len, shapes))) == 1


def largest_matrix_extent(node: ir.Node) -> int | None:
    """The largest extent of the matrices that a product multiplies."""
    return _largest(node.inputs[:2], slice(-2, None))


def largest_batch_extent(node: ir.Node) -> int | None:
    """The largest extent in front of the matrices that a product multiplies; 1 if there are none."""
    return _largest(node.inputs[:2], slice(None, -2))


def changed_extents(node: ir.Node) -> int | None:
    """How many extents of the result differ from those of the first input, aligned at the last one."""
    before, after = extents_of(node.inputs[0]), extents_of(node.outputs[0])
    if before is None or after is None or len(after) < len(before):
        return None
    return sum(one != other for one, other in zip([1] * (len(after) - len(before)) + before, after, strict=True))


def indivisible_parts(node: ir.Node) -> int | None:
    """How many parts of a Split have an extent of which that of the whole is no multiple."""
    before = extents_of(node.inputs[0])
    parts = [part for value in node.outputs if (part := extents_of(value)) is not None]
    if before is None or len(parts) < len(node.outputs) or any(len(part) != len(before) for part in parts):
        return None
    return sum(any(whole % max(extent, 1) for whole, extent in zip(before, part, strict=True)) for part in parts)


def only_gemms_read(node: ir.Node) -> bool:
    """Whether matrix products alone read the result, as what they multiply."""
    uses = list(node.outputs[0].uses())
    inside = not node.outputs[0].is_graph_output()
    return inside and bool(uses) and all(reader.op_type == "Gemm" and index == 0 for reader, index in uses)


def output_layout(node: ir.Node) -> bool:
    """Whether a Transpose to channels last gives an output of the model, of what a convolution computes."""
    value, before = node.outputs[0], input_of(node, 0).producer()
    if node.op_type != "Transpose" or tuple(node.attributes.get_ints("perm", ())) != _CHANNELS_LAST:
        return False
    return value.is_graph_output() and not value.uses() and before is not None and before.op_type in _CONVOLUTIONS


def reduced_extent(node: ir.Node) -> int | None:
    """The number of elements that each element of the result is reduced from."""
    before, after = extents_of(node.inputs[0]), extents_of(node.outputs[0])
    if before is None or after is None:
        return None
    return product(before) // max(product(after), 1)


def _image(node: ir.Node) -> tuple[int, int, int] | None:
    """Channels, rows and columns of the image that a Gemm reads."""
    read = extents_of(node.inputs[0])
    if read is None:
        return None
    before = input_of(node, 0).producer()
    if before is not None and before.op_type in _FLATTENING:
        image = extents_of(before.inputs[0])
        if image is not None and len(image) == 4 and image[0] == read[0]:
            return image[1], image[2], image[3]
    return read[-1], 1, 1


def _largest(values: Iterable[ir.Value | None], part: slice) -> int | None:
    extents: list[int] = []
    for value in values:
        shape = extents_of(value)
        if shape is None:
            return None
        extents += shape[part]
    return max(extents, default=1)


def _constant(value: ir.Value | None) -> np.ndarray | None:
    if value is None or not value.is_initializer() or value.is_graph_input() or value.const_value is None:
        return None
    return value.const_value.numpy() if value.const_value.size <= _LARGEST_READ else None


def broadcast_first_axis(node: ir.Node) -> bool | None:
    """Whether an operand is broadcast along the first axis of the result; a single number, which has no axes, is not.

    Source: logs of the vendor's tool, where a product of a batch with a number is on the BPU.
    """
    flags = _broadcast(node)
    if flags is None:
        return None
    operands = [extents_of(value) for value in node.inputs if value is not None]
    numbers = [extents is not None and all(extent == 1 for extent in extents) for extents in operands]
    return any(axes[0] for axes, number in zip(flags, numbers, strict=True) if axes and not number)


def broadcast_operands(node: ir.Node) -> int | None:
    """How many operands are broadcast along some axis."""
    flags = _broadcast(node)
    return None if flags is None else sum(any(axes) for axes in flags)


def merged_rank(node: ir.Node) -> int | None:
    """The rank of the result with neighboring axes merged along which nothing is broadcast."""
    flags = _broadcast(node)
    if flags is None:
        return None
    along = [any(axis) for axis in zip(*flags, strict=True)]
    return sum(broadcast or not i or along[i - 1] for i, broadcast in enumerate(along))


def listed_broadcast(node: ir.Node) -> bool | None:
    """Whether the batch axes of a MatMul are broadcast in one of the ways that the vendor lists.

    The first operand is broadcast along all of its batch axes or along none. The second one may keep leading axes and
    be broadcast along all behind them, unless the first is broadcast.
    """
    first, second = (extents_of(value) for value in node.inputs[:2])
    if first is None or second is None:
        return None
    rank = max(len(first), len(second))
    first, second = ([1] * (rank - len(extents)) + extents for extents in (first, second))
    pairs = list(zip(first[:-2], second[:-2], strict=True))
    ones = [one == 1 and other != 1 for one, other in pairs]
    others = [other == 1 and one != 1 for one, other in pairs]
    if any(ones):
        return all(ones)
    return others == sorted(others)


def _broadcast(node: ir.Node) -> list[list[bool]] | None:
    """For every operand, whether it is broadcast, axis by axis of the result."""
    after = extents_of(node.outputs[0])
    read = [value for value in node.inputs if value is not None]
    operands = [extents for value in read if (extents := extents_of(value)) is not None]
    if after is None or len(operands) < len(read) or any(len(extents) > len(after) for extents in operands):
        return None
    padded = [[1] * (len(after) - len(extents)) + extents for extents in operands]
    return [[one == 1 and other != 1 for one, other in zip(extents, after, strict=True)] for extents in padded]
