"""ConvTranspose by ConvInteger: zeros between the pixels, and mirrored weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from dovetail.ir.required import shape_of

from dovetail_quantize.arithmetic.not_integer import NotIntegerError
from dovetail_quantize.arithmetic.parts import Part, stored_part
from dovetail_quantize.arithmetic.ports import known_extents
from dovetail_quantize.arithmetic.products import finished, multiplied, weight_axis

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_quantize.arithmetic.lowering import Lowering


class _Axis(NamedTuple):
    """One spatial axis: extents, stride, and what is added, or cut off if negative, around the widened input."""

    extent: int
    stride: int
    begin: int
    end: int


def lower_conv_transpose(at: Lowering) -> list[ir.Value]:
    """ConvTranspose: every pixel is followed by zeros up to the stride, and a ConvInteger runs over that."""
    data, weight = at.operand(0), at.operand(1)
    if weight.tensor is None:
        raise NotIntegerError("its weight is computed")
    nodes, rank = at.nodes, at.rank - 2
    shape = shape_of(weight.value).numpy()
    kernel = shape[2:]
    group = at.node.attributes.get_int("group", 1)
    dilations = list(at.node.attributes.get_ints("dilations", (1,) * rank))
    channels, *extents = known_extents(data.value)
    axes = _axes(at, extents, kernel, dilations)
    wanted = (shape[1] * group, shape[0] // group, *kernel)

    def mirrored(array: np.ndarray) -> np.ndarray:
        split = array.reshape(group, shape[0] // group, *shape[1:]).swapaxes(1, 2).reshape(wanted)
        return np.flip(split, tuple(range(2, 2 + rank)))

    stored = stored_part(nodes, weight, wanted, mirrored, f"mirrored_{group}_")

    def product(one: Part, other: Part) -> ir.Value:
        wide = _widened(at, one, channels, axes)
        zeros = [nodes.constant(part.zero, np.uint8, "zero_point") for part in (one, other)]
        inputs = [wide, other.value, *zeros]
        return nodes.make("ConvInteger", inputs, np.int32, at.shape, group=group, dilations=dilations)

    found = multiplied(at.parts.of(nodes, data), [stored], math.prod(wanted[1:]), product)
    scales = weight_axis(weight, 1)
    return [finished(at, found, np.tile(scales, group) if scales.size > 1 else scales, rank)]


def _axes(at: Lowering, extents: list[int], kernel: tuple[int, ...], dilations: list[int]) -> list[_Axis]:
    rank, attributes = len(extents), at.node.attributes
    strides = attributes.get_ints("strides", (1,) * rank)
    extra = attributes.get_ints("output_padding", (0,) * rank)
    pads = list(attributes.get_ints("pads", (0,) * 2 * rank))
    auto, asked = attributes.get_string("auto_pad", "NOTSET"), attributes.get_ints("output_shape", ())
    reach = [(kernel[axis] - 1) * dilations[axis] for axis in range(rank)]
    if asked or auto.startswith("SAME"):
        for axis in range(rank):
            wanted = asked[axis - rank] if asked else extents[axis] * strides[axis]
            total = max(strides[axis] * (extents[axis] - 1) + extra[axis] + reach[axis] + 1 - wanted, 0)
            smaller, larger = total // 2, total - total // 2
            upper = auto == "SAME_UPPER"
            pads[axis], pads[rank + axis] = (smaller, larger) if upper else (larger, smaller)
    elif auto == "VALID":
        pads = [0] * 2 * rank
    return [
        _Axis(
            extents[axis],
            strides[axis],
            reach[axis] - pads[axis],
            reach[axis] - pads[rank + axis] + extra[axis] - (strides[axis] - 1),
        )
        for axis in range(rank)
    ]


def _widened(at: Lowering, part: Part, channels: int, axes: list[_Axis]) -> ir.Value:
    """The input with zeros behind every pixel, and around it what the kernel reaches."""
    nodes, value = at.nodes, part.value
    zero = nodes.constant(part.zero, np.uint8, "zero_point")
    if any(axis.stride > 1 for axis in axes):
        apart = [-1, channels]
        pads = [0, 0]
        for axis in axes:
            apart += [axis.extent, 1]
            pads += [0, axis.stride - 1]
        shape = nodes.constant(apart, np.int64, nodes.named("pixels"))
        value = nodes.make("Reshape", [value, shape], np.uint8)
        ends = nodes.constant([0] * len(pads) + pads, np.int64, nodes.named("zeros"))
        value = nodes.make("Pad", [value, ends, zero], np.uint8)
        whole = [-1, channels, *(axis.extent * axis.stride for axis in axes)]
        value = nodes.make("Reshape", [value, nodes.constant(whole, np.int64, nodes.named("widened"))], np.uint8)
    around = [0, 0, *(axis.begin for axis in axes), 0, 0, *(axis.end for axis in axes)]
    if any(around):
        value = nodes.make("Pad", [value, nodes.constant(around, np.int64, nodes.named("around")), zero], np.uint8)
    return value
