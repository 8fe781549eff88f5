"""Lowering of Conv, ConvTranspose, Gemm and MatMul to ConvInteger and MatMulInteger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.ir import dtype_of, shape_of

from dovetail_quantize.arithmetic.lowering import NotIntegerError
from dovetail_quantize.arithmetic.parts import ProductOperand, stored_part
from dovetail_quantize.arithmetic.ports import known_extents
from dovetail_quantize.arithmetic.sums import bounds_of, rounded, scaled

if TYPE_CHECKING:
    from dovetail_quantize.arithmetic.lowering import Lowering
    from dovetail_quantize.arithmetic.ports import Integers


_INT32 = 1 << 31
_CLOSE = 1e-5  # relative difference allowed between two scales multiplied in different orders


class Sum(NamedTuple):
    """A sum of products, without bias.

    Attributes:
        terms: Factors and the int32 values that they multiply.
        largest: Upper bound of the sum's magnitude.
    """

    terms: list[tuple[int, ir.Value]]
    largest: int


def lower_conv(at: Lowering) -> list[ir.Value]:
    """Lower Conv to ConvInteger."""
    data, weight = at.operand(0), at.operand(1)
    if weight.tensor is None:
        raise NotIntegerError("its weight is computed")
    attributes = {
        name: at.node.attributes[name]
        for name in ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
        if name in at.node.attributes
    }
    shape = shape_of(weight.value).numpy()
    stored = stored_part(at.nodes, weight, shape)

    def product(one: ProductOperand, other: ProductOperand) -> ir.Value:
        zeros = [at.nodes.constant(part.zero, np.uint8, "zero_point") for part in (one, other)]
        return at.nodes.make("ConvInteger", [one.value, other.value, *zeros], np.int32, at.shape, **attributes)

    found = multiplied(at.parts.of(at.nodes, data), [stored], math.prod(shape[1:]), product)
    return [finished(at, found, weight_axis(weight, 0), at.rank - 2)]


def lower_gemm(at: Lowering) -> list[ir.Value]:
    """Lower Gemm to MatMulInteger; constant operands are stored transposed."""
    for name in ("alpha", "beta"):
        if at.node.attributes.get_float(name, 1.0) != 1.0:
            raise NotIntegerError(f"{name} is not 1")
    turned = [bool(at.node.attributes.get_int(name, 0)) for name in ("transA", "transB")]
    weight = at.operand(1)
    left, right = (_matrix(at, index, turned[index]) for index in (0, 1))
    extent = shape_of(at.operand(0).value)[0 if turned[0] else 1]
    scales = weight_axis(weight, 0 if turned[1] else 1)
    return [finished(at, _matmul(at, left, right, extent), scales, 0)]


def lower_matmul(at: Lowering) -> list[ir.Value]:
    """Lower MatMul to MatMulInteger."""
    ranks = [len(at.operand(index).value.shape or ()) for index in (0, 1)]
    if min(ranks) < 2:
        raise NotIntegerError("an operand has less than two axes, or how many is not known")
    left, right = (_matrix(at, index, False) for index in (0, 1))
    extent = shape_of(at.operand(0).value)[-1]
    return [finished(at, _matmul(at, left, right, extent), weight_axis(at.operand(1), ranks[1] - 1), 0)]


def _matrix(at: Lowering, index: int, turned: bool) -> list[ProductOperand]:
    held = at.operand(index)
    if held.tensor is not None and held.dtype.bitwidth <= 8:
        shape = shape_of(held.value).numpy()
        if turned:
            return [stored_part(at.nodes, held, shape[::-1], np.transpose, "transposed_")]
        return [stored_part(at.nodes, held, shape)]
    parts = at.parts.of(at.nodes, held)
    if turned:
        known = held.value.shape
        turn = None if known is None else list(reversed(known))
        parts = [
            part._replace(value=at.nodes.make("Transpose", [part.value], np.uint8, turn, perm=[1, 0])) for part in parts
        ]
    return parts


def _matmul(at: Lowering, left: list[ProductOperand], right: list[ProductOperand], extent: object) -> Sum:
    def product(one: ProductOperand, other: ProductOperand) -> ir.Value:
        zeros = [at.nodes.constant(part.zero, np.uint8, "zero_point") for part in (one, other)]
        return at.nodes.make("MatMulInteger", [one.value, other.value, *zeros], np.int32, at.shape)

    return multiplied(left, right, extent, product)


def multiplied(left: Sequence[ProductOperand], right: Sequence[ProductOperand], extent: object, product) -> Sum:
    """Multiply all pairs of parts.

    Args:
        left: The parts of the first operand.
        right: The parts of the second operand.
        extent: Number of products per sum.
        product: Builds the int32 product of two parts.

    Raises:
        NotIntegerError: A sum may overflow int32, or has no products, which ONNX Runtime's kernels leave as the memory
            was.
    """
    if not isinstance(extent, int):
        raise NotIntegerError("how many products are summed is not known before it runs")
    if extent == 0:
        raise NotIntegerError("it sums no products")
    terms, largest = [], 0
    for one in left:
        for other in right:
            most = one.largest * other.largest * extent
            if most >= _INT32:
                raise NotIntegerError(f"a sum of {extent} products may be too large for int32")
            terms.append((one.factor * other.factor, product(one, other)))
            largest += one.factor * other.factor * most
    return Sum(terms, largest)


def weight_axis(weight: Integers, channels: int) -> np.ndarray:
    """Return the scales of a weight: one, or one per output channel.

    Raises:
        NotIntegerError: The scales vary along another axis.
    """
    if weight.axis is not None and weight.axis != channels:
        raise NotIntegerError(f"the scales of its weight '{weight.value.name}' differ within a sum")
    return weight.scale


def finished(at: Lowering, found: Sum, scales: np.ndarray, trailing: int) -> ir.Value:
    """Add the bias, then quantize or dequantize the sum, as the readers require.

    Args:
        at: The product.
        found: The sum.
        scales: The scales of the weight.
        trailing: Number of axes after the channels.
    """
    nodes, scale = at.nodes, at.operand(0).one_scale()[0]
    products = np.maximum(np.float32(scale) * scales.astype(np.float32), np.finfo(np.float32).tiny)
    total = _with_bias(at, found, products, trailing)
    result = at.results[0]
    channels = (-1,) + (1,) * trailing if scales.size > 1 else ()
    if result.held is not None:
        multiplier = (scale * scales / result.held.one_scale()[0]).reshape(channels)
        return rounded(nodes, scaled(nodes, total, multiplier), result.held, bounds_of(result.held, result.activation))
    real = nodes.cast(total, np.float32)
    factor = nodes.constant(products.reshape(channels), np.float32, nodes.named("scale"))
    return nodes.cast(nodes.make("Mul", [real, factor], np.float32, total), dtype_of(result.value))


def _with_bias(at: Lowering, found: Sum, products: np.ndarray, trailing: int) -> ir.Value:
    """Add the bias to a sum: in int32 if it always fits, else in float64, which is exact."""
    nodes = at.nodes
    bias = at.operands[2] if len(at.operands) > 2 else None
    array = None
    if bias is None and len(at.node.inputs) > 2 and at.node.inputs[2] is not None:
        raise NotIntegerError("its bias is not in integers")
    if bias is not None:
        array = _bias(bias, products)
        if trailing:
            array = array.reshape(-1, *(1,) * trailing)
    largest = found.largest + (int(np.abs(array.astype(np.int64)).max(initial=0)) if array is not None else 0)
    (factor, total), *more = found.terms
    kind = np.int32 if largest < _INT32 and not more else np.float64
    total = scaled(nodes, total, float(factor)) if kind is np.float64 else total
    for factor, term in more:
        total = nodes.make("Add", [total, scaled(nodes, term, float(factor))], np.float64, at.shape)
    if array is not None:
        constant = nodes.constants.add(ir.Tensor(array.astype(kind)), nodes.named("bias"))
        total = nodes.make("Add", [total, constant], kind, at.shape)
    return total


def _bias(bias: Integers, products: np.ndarray) -> np.ndarray:
    """Return the integers of a bias.

    Raises:
        NotIntegerError: The bias is computed, or its scale is not that of the products.
    """
    name = bias.value.name
    if bias.tensor is None:
        raise NotIntegerError(f"its bias '{name}' is computed")
    if bias.zero.any() or not np.allclose(bias.scale, products, rtol=_CLOSE, atol=0):
        raise NotIntegerError(f"the scale of its bias '{name}' is not that of the products")
    return bias.tensor.numpy()


class _Axis(NamedTuple):
    """One spatial axis: its extent, stride, and padding of the zero-stuffed input (negative padding crops)."""

    extent: int
    stride: int
    begin: int
    end: int


def lower_conv_transpose(at: Lowering) -> list[ir.Value]:
    """Lower ConvTranspose to zero stuffing by the stride and a ConvInteger."""
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

    def product(one: ProductOperand, other: ProductOperand) -> ir.Value:
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


def _widened(at: Lowering, part: ProductOperand, channels: int, axes: list[_Axis]) -> ir.Value:
    """Return the zero-stuffed input, padded for the kernel."""
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
