"""Arithmetic: Add, Sub, Sum, Mul, and multipliers per channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.arithmetic.not_integer import NotIntegerError
from dovetail_quantize.arithmetic.scaling import bounds_of, centred, rounded, scaled

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_quantize.arithmetic.lowering import Lowering


_INT32 = 1 << 31


def lower_sum(at: Lowering) -> list[ir.Value]:
    """Add, Sub and Sum: every operand times its multiplier, summed in float64 in order."""
    nodes, result = at.nodes, at.result(0)
    scale = result.held.one_scale()[0]
    operator = "Sub" if at.node.op_type == "Sub" else "Add"

    def term(index: int) -> ir.Value:
        held = at.operand(index)
        return scaled(nodes, centred(nodes, held, np.int32), held.one_scale()[0] / scale)

    total = term(0)
    for index in range(1, len(at.node.inputs)):
        total = nodes.make(operator, [total, term(index)], np.float64, at.shape)
    return [rounded(nodes, total, result.held, bounds_of(result.held, result.activation))]


def lower_mul(at: Lowering) -> list[ir.Value]:
    """Mul: the product of the integers times one multiplier."""
    nodes, result = at.nodes, at.result(0)
    one, other = at.operand(0), at.operand(1)
    if one.largest * other.largest >= _INT32:
        raise NotIntegerError("a product of its operands may be too large for int32")
    multiplier = one.one_scale()[0] * other.one_scale()[0] / result.held.one_scale()[0]
    factors = [centred(nodes, held, np.int32) for held in (one, other)]
    product = nodes.make("Mul", factors, np.int32, at.shape)
    return [rounded(nodes, scaled(nodes, product, multiplier), result.held, bounds_of(result.held, result.activation))]


def lower_prelu(at: Lowering) -> list[ir.Value]:
    """PRelu with a slope per channel: the positive and the negative part, each times its multiplier."""
    nodes, result, held = at.nodes, at.result(0), at.operand(0)
    slope = at.constant(1)
    if slope is None:
        raise NotIntegerError("its slope is computed")
    scale, wanted = held.one_scale()[0], result.held.one_scale()[0]
    exact = nodes.cast(centred(nodes, held, np.int32), np.float64)
    zero = nodes.constant(0, np.float64, "zero")
    parts = []
    slopes = slope.astype(np.float64) * scale / wanted
    for operator, multiplier in (("Max", scale / wanted), ("Min", slopes)):
        part = nodes.make(operator, [exact, zero], np.float64, held.value)
        parts.append(scaled(nodes, part, multiplier, f"{operator.lower()}_multiplier"))
    total = nodes.make("Add", parts, np.float64, at.shape)
    return [rounded(nodes, total, result.held, bounds_of(result.held, result.activation))]


def lower_batch_norm(at: Lowering) -> list[ir.Value]:
    """BatchNormalization: one multiplier and one summand per channel."""
    nodes, result, held = at.nodes, at.result(0), at.operand(0)
    if at.node.attributes.get_int("training_mode", 0) or len(at.node.outputs) > 1:
        raise NotIntegerError("it computes means while it runs")
    given = [array.astype(np.float64) for index in range(1, 5) if (array := at.constant(index)) is not None]
    if len(given) < 4:
        raise NotIntegerError("its parameters are computed")
    factor, summand, mean, variance = given
    slope = factor / np.sqrt(variance + np.float64(np.float32(at.node.attributes.get_float("epsilon", 1e-5))))
    scale, wanted = held.one_scale()[0], result.held.one_scale()[0]
    channels = (-1, *(1,) * (at.rank - 2))
    term = scaled(nodes, centred(nodes, held, np.int32), (slope * scale / wanted).reshape(channels))
    shift = nodes.constant(((summand - mean * slope) / wanted).reshape(channels), np.float64, nodes.named("shift"))
    total = nodes.make("Add", [term, shift], np.float64, at.shape)
    return [rounded(nodes, total, result.held, bounds_of(result.held, result.activation))]
