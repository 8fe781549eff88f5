"""Conv, Gemm and MatMul by ConvInteger and MatMulInteger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.ir.required import dtype_of, shape_of

from dovetail_quantize.arithmetic.not_integer import NotIntegerError
from dovetail_quantize.arithmetic.parts import Part, stored_part
from dovetail_quantize.arithmetic.scaling import bounds_of, rounded, scaled

if TYPE_CHECKING:
    from dovetail_quantize.arithmetic.lowering import Lowering
    from dovetail_quantize.arithmetic.ports import Integers


_INT32 = 1 << 31
_CLOSE = 1e-5  # relative difference of two scales that were multiplied in another order


class Sum(NamedTuple):
    """The sum of products, without a bias.

    Attributes:
        terms: Values in int32 with their factors.
        largest: No sum is larger than this.
    """

    terms: list[tuple[int, ir.Value]]
    largest: int


def lower_conv(at: Lowering) -> list[ir.Value]:
    """Conv: a ConvInteger."""
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

    def product(one: Part, other: Part) -> ir.Value:
        zeros = [at.nodes.constant(part.zero, np.uint8, "zero_point") for part in (one, other)]
        return at.nodes.make("ConvInteger", [one.value, other.value, *zeros], np.int32, at.shape, **attributes)

    found = multiplied(at.parts.of(at.nodes, data), [stored], math.prod(shape[1:]), product)
    return [finished(at, found, weight_axis(weight, 0), at.rank - 2)]


def lower_gemm(at: Lowering) -> list[ir.Value]:
    """Gemm: a MatMulInteger; a stored operand is transposed where it is stored."""
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
    """MatMul: a MatMulInteger."""
    ranks = [len(at.operand(index).value.shape or ()) for index in (0, 1)]
    if min(ranks) < 2:
        raise NotIntegerError("an operand has less than two axes, or how many is not known")
    left, right = (_matrix(at, index, False) for index in (0, 1))
    extent = shape_of(at.operand(0).value)[-1]
    return [finished(at, _matmul(at, left, right, extent), weight_axis(at.operand(1), ranks[1] - 1), 0)]


def _matrix(at: Lowering, index: int, turned: bool) -> list[Part]:
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


def _matmul(at: Lowering, left: list[Part], right: list[Part], extent: object) -> Sum:
    def product(one: Part, other: Part) -> ir.Value:
        zeros = [at.nodes.constant(part.zero, np.uint8, "zero_point") for part in (one, other)]
        return at.nodes.make("MatMulInteger", [one.value, other.value, *zeros], np.int32, at.shape)

    return multiplied(left, right, extent, product)


def multiplied(left: Sequence[Part], right: Sequence[Part], extent: object, product) -> Sum:
    """The products of all parts.

    Args:
        left: The parts of the first operand.
        right: The parts of the second operand.
        extent: How many products one sum has.
        product: Makes the product of two parts, in int32.

    Raises:
        NotIntegerError: A sum may leave the range of int32.
    """
    if not isinstance(extent, int):
        raise NotIntegerError("how many products are summed is not known before it runs")
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
    """The scales of a weight: one, or one per output channel.

    Raises:
        NotIntegerError: Scales differ along another axis.
    """
    if weight.axis is not None and weight.axis != channels:
        raise NotIntegerError(f"the scales of its weight '{weight.value.name}' differ within a sum")
    return weight.scale


def finished(at: Lowering, found: Sum, scales: np.ndarray, behind: int) -> ir.Value:
    """Add the bias, and give the result the form that its readers want.

    Args:
        at: The product.
        found: The sum.
        scales: The scales of the weight.
        behind: How many axes come behind the channels.
    """
    nodes, scale = at.nodes, at.operand(0).one_scale()[0]
    products = np.maximum(np.float32(scale) * scales.astype(np.float32), np.finfo(np.float32).tiny)
    total = _with_bias(at, found, products, behind)
    result = at.results[0]
    channels = (-1,) + (1,) * behind if scales.size > 1 else ()
    if result.held is not None:
        multiplier = (scale * scales / result.held.one_scale()[0]).reshape(channels)
        return rounded(nodes, scaled(nodes, total, multiplier), result.held, bounds_of(result.held, result.activation))
    real = nodes.cast(total, np.float32)
    factor = nodes.constant(products.reshape(channels), np.float32, nodes.named("scale"))
    return nodes.cast(nodes.make("Mul", [real, factor], np.float32, total), dtype_of(result.value))


def _with_bias(at: Lowering, found: Sum, products: np.ndarray, behind: int) -> ir.Value:
    """The sum with the bias: in int32 where it always fits, else in float64, which holds it exactly."""
    nodes = at.nodes
    bias = at.operands[2] if len(at.operands) > 2 else None
    array = None
    if bias is None and len(at.node.inputs) > 2 and at.node.inputs[2] is not None:
        raise NotIntegerError("its bias is not in integers")
    if bias is not None:
        array = _bias(bias, products)
        if behind:
            array = array.reshape(-1, *(1,) * behind)
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
    """The integers of a bias.

    Raises:
        NotIntegerError: It is computed, or its scale is not that of the products.
    """
    name = bias.value.name
    if bias.tensor is None:
        raise NotIntegerError(f"its bias '{name}' is computed")
    if bias.zero.any() or not np.allclose(bias.scale, products, rtol=_CLOSE, atol=0):
        raise NotIntegerError(f"the scale of its bias '{name}' is not that of the products")
    return bias.tensor.numpy()
