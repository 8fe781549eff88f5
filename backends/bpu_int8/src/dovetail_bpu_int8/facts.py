"""Facts about nodes for the limits of `bpu-int8`; None if unknown before run time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import input_of

if TYPE_CHECKING:
    import onnx_ir as ir


def extents_of(value: ir.Value | None) -> list[int] | None:
    """Return the extents of a value; None without a value, or if an extent is unknown before run time."""
    shape = None if value is None else value.shape
    return list(shape.numpy()) if shape is not None and all(isinstance(extent, int) for extent in shape) else None


def all_extents(node: ir.Node) -> list[list[int]] | None:
    """Return the extents of a node's nonconstant float operands and results; None if one is unknown."""
    read = [value for value in node.inputs if value is not None and value.const_value is None]
    floats = [value for value in (*read, *node.outputs) if _holds_floats(value)]
    shapes = [shape for value in floats if (shape := extents_of(value)) is not None]
    return shapes if len(shapes) == len(floats) else None


def product(extents: Sequence[int]) -> int:
    """Return the number of elements of a tensor with these extents."""
    return math.prod(extents)


def _holds_floats(value: ir.Value) -> bool:
    return bool(value.name) and value.dtype is not None and value.dtype.is_floating_point()


_LARGEST_READ = 1 << 20  # largest number of constant elements to read
_CHANNELS_LAST, _CONVOLUTIONS = (0, 2, 3, 1), ("Conv", "ConvTranspose")
_FLATTENING = ("Flatten", "Reshape")


def residual_add(node: ir.Node) -> bool:
    """Check whether the only reader is an Add of two computed values, which the toolchain fuses with the node."""
    uses = node.outputs[0].uses()
    if len(uses) != 1 or node.outputs[0].is_graph_output():
        return False
    reader = next(iter(uses))[0]
    return reader.op_type == "Add" and all(
        value is not None and value.producer() is not None and value.const_value is None for value in reader.inputs
    )


def operands(node: ir.Node) -> int:
    """Return the number of inputs."""
    return sum(value is not None for value in node.inputs)


def not_computed(node: ir.Node) -> int:
    """Return the number of inputs without a producer: constants and model inputs."""
    return sum(value is not None and value.producer() is None for value in node.inputs)


def zeros(node: ir.Node) -> int:
    """Return the number of zeros in the constant operands; large constants count as having none."""
    return sum(int(np.count_nonzero(array == 0)) for array in map(_constant, node.inputs) if array is not None)


def second_size(node: ir.Node) -> int | None:
    """Return the number of elements of the second input."""
    extents = extents_of(node.inputs[1])
    return None if extents is None else product(extents)


def first_extent(node: ir.Node) -> int | None:
    """Return the largest first extent of the nonconstant float operands and results; 1 for scalars."""
    shapes = all_extents(node)
    return None if shapes is None else max((extents[0] for extents in shapes if extents), default=1)


def largest_extent(node: ir.Node) -> int | None:
    """Return the largest extent of these values after the first axis; 1 if there are none."""
    shapes = all_extents(node)
    return None if shapes is None else max((extent for extents in shapes for extent in extents[1:]), default=1)


def largest_size(node: ir.Node) -> int | None:
    """Return the size in bytes of the largest of these values in int8."""
    shapes = all_extents(node)
    return None if shapes is None else max(map(product, shapes), default=1)


def image_channels(node: ir.Node) -> int | None:
    """Return the channels of the image that a Gemm reads: those before a Flatten, else its whole inner extent."""
    image = _image(node)
    return None if image is None else image[0]


def image_height(node: ir.Node) -> int | None:
    """Return the rows of the image that a Gemm reads; 1 without a flattened image."""
    image = _image(node)
    return None if image is None else image[1]


def image_width(node: ir.Node) -> int | None:
    """Return the columns of the image that a Gemm reads; 1 without a flattened image."""
    image = _image(node)
    return None if image is None else image[2]


def same_ranks(node: ir.Node) -> bool | None:
    """Check whether all inputs have the same rank."""
    shapes = [value.shape for value in node.inputs if value is not None and value.shape is not None]
    return None if len(shapes) < len(node.inputs) else len(set(map(len, shapes))) == 1


def largest_matrix_extent(node: ir.Node) -> int | None:
    """Return the largest extent of the matrices of a product."""
    return _largest(node.inputs[:2], slice(-2, None))


def largest_batch_extent(node: ir.Node) -> int | None:
    """Return the largest batch extent of a product; 1 without batch axes."""
    return _largest(node.inputs[:2], slice(None, -2))


def changed_extents(node: ir.Node) -> int | None:
    """Return how many extents differ between result and first input, aligned at the last axis."""
    before, after = extents_of(node.inputs[0]), extents_of(node.outputs[0])
    if before is None or after is None or len(after) < len(before):
        return None
    return sum(one != other for one, other in zip([1] * (len(after) - len(before)) + before, after, strict=True))


def indivisible_parts(node: ir.Node) -> int | None:
    """Return how many parts of a Split have an extent that does not divide the input's."""
    before = extents_of(node.inputs[0])
    parts = [part for value in node.outputs if (part := extents_of(value)) is not None]
    if before is None or len(parts) < len(node.outputs) or any(len(part) != len(before) for part in parts):
        return None
    return sum(any(whole % max(extent, 1) for whole, extent in zip(before, part, strict=True)) for part in parts)


def only_gemms_read(node: ir.Node) -> bool:
    """Check whether all readers of the result are Gemms with it as first operand."""
    uses = list(node.outputs[0].uses())
    inside = not node.outputs[0].is_graph_output()
    return inside and bool(uses) and all(reader.op_type == "Gemm" and index == 0 for reader, index in uses)


def output_layout(node: ir.Node) -> bool:
    """Check whether a Transpose to channels-last yields a model output from a convolution."""
    value, before = node.outputs[0], input_of(node, 0).producer()
    if node.op_type != "Transpose" or tuple(node.attributes.get_ints("perm", ())) != _CHANNELS_LAST:
        return False
    return value.is_graph_output() and not value.uses() and before is not None and before.op_type in _CONVOLUTIONS


def reduced_extent(node: ir.Node) -> int | None:
    """Return the number of input elements per element of a reduction's result."""
    before, after = extents_of(node.inputs[0]), extents_of(node.outputs[0])
    if before is None or after is None:
        return None
    return product(before) // max(product(after), 1)


def _image(node: ir.Node) -> tuple[int, int, int] | None:
    """Return channels, rows and columns of the image that a Gemm reads."""
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
    """Check whether an operand is broadcast along the first axis of the result; scalars do not count.

    Source: logs of the vendor's tool, where a product of a batch with a scalar is on the BPU.
    """
    flags = _broadcast(node)
    if flags is None:
        return None
    operands = [extents_of(value) for value in node.inputs if value is not None]
    numbers = [extents is not None and all(extent == 1 for extent in extents) for extents in operands]
    return any(axes[0] for axes, number in zip(flags, numbers, strict=True) if axes and not number)


def broadcast_operands(node: ir.Node) -> int | None:
    """Return how many operands are broadcast along some axis."""
    flags = _broadcast(node)
    return None if flags is None else sum(any(axes) for axes in flags)


def merged_rank(node: ir.Node) -> int | None:
    """Return the rank of the result after merging adjacent axes without broadcasting."""
    flags = _broadcast(node)
    if flags is None:
        return None
    along = [any(axis) for axis in zip(*flags, strict=True)]
    return sum(broadcast or not i or along[i - 1] for i, broadcast in enumerate(along))


def listed_broadcast(node: ir.Node) -> bool | None:
    """Check whether the batch axes of a MatMul are broadcast in a way that the vendor lists.

    The first operand is broadcast along all of its batch axes or none. The second one may keep leading axes and be
    broadcast along all later ones, unless the first is broadcast.
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
    """Return for every operand whether it is broadcast, by axis of the result."""
    after = extents_of(node.outputs[0])
    read = [value for value in node.inputs if value is not None]
    operands = [extents for value in read if (extents := extents_of(value)) is not None]
    if after is None or len(operands) < len(read) or any(len(extents) > len(after) for extents in operands):
        return None
    padded = [[1] * (len(after) - len(extents)) + extents for extents in operands]
    return [[one == 1 and other != 1 for one, other in zip(extents, after, strict=True)] for extents in padded]
