"""Lowering of Add, Sub, Sum, Mul and per-channel multipliers, and rounding of exact sums to integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail_quantize.arithmetic.lowering import NotIntegerError

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_quantize.arithmetic.lowering import Lowering, Nodes
    from dovetail_quantize.arithmetic.ports import Integers


class SumBounds(NamedTuple):
    """Smallest and largest integer of a result."""

    low: int
    high: int


def bounds_of(held: Integers, activation: ir.Node | None = None) -> SumBounds:
    """Return the bounds of a result: those of its type, narrowed by a fused activation.

    Raises:
        NotIntegerError: The activation has computed bounds.
    """
    scale, zero = held.one_scale()
    low, high = held.low, held.high
    if activation is None:
        return SumBounds(low, high)
    if activation.op_type == "Relu":
        return SumBounds(max(low, zero), high)
    given = [_bound(activation, index) for index in (1, 2)]
    found = [None if bound is None else int(round_to(bound / scale, held, zero)) for bound in given]
    if found[0] is not None:
        low = found[0]
    if found[1] is not None:
        high = found[1]
    return SumBounds(min(low, high), high)  # if the bounds cross, the upper one wins


def _bound(activation: ir.Node, index: int) -> float | None:
    value = activation.inputs[index] if index < len(activation.inputs) else None
    if value is None:
        return None
    if value.const_value is None or value.is_graph_input():
        raise NotIntegerError(f"the bounds of '{activation.name}', which is computed together with it, are computed")
    return float(value.const_value.numpy().item())


def round_to(number: float | np.ndarray, held: Integers, zero: int) -> int | np.ndarray:
    """Round real numbers in units of the scale to integers, saturate, and map NaN to the zero point."""
    rounded_ = np.clip(np.rint(number) + zero, held.low, held.high)
    found = np.where(np.isnan(rounded_), zero, rounded_).astype(np.int64)
    return int(found) if np.ndim(number) == 0 else found


def centered(nodes: Nodes, held: Integers, dtype: type) -> ir.Value:
    """Subtract the zero point of a value, in a type wide enough for the difference."""
    zero = held.one_scale()[1]
    value = nodes.cast(held.value, dtype)
    if zero:
        value = nodes.make("Sub", [value, nodes.constant(zero, dtype, "zero_point")], dtype, value)
    return value


def scaled(nodes: Nodes, value: ir.Value, multiplier: float | np.ndarray, what: str = "multiplier") -> ir.Value:
    """Multiply exact integers by a multiplier in float64."""
    exact = nodes.cast(value, np.float64)
    if np.ndim(multiplier) == 0 and multiplier == 1.0:
        return exact
    factor = nodes.constant(multiplier, np.float64, nodes.named(what))
    return nodes.make("Mul", [exact, factor], np.float64, value)


def rounded(nodes: Nodes, real: ir.Value, held: Integers, bounds: SumBounds | None = None) -> ir.Value:
    """Round float64 numbers in units of the result's scale to its integers."""
    low, high = bounds or bounds_of(held)
    zero = held.one_scale()[1]
    value = nodes.make("Round", [real], np.float64, real)
    if zero:
        value = nodes.make("Add", [value, nodes.constant(zero, np.float64, "zero_point")], np.float64, real)
    ends = [nodes.constant(end, np.float64, f"clip_at_{end}") for end in (low, high)]
    value = nodes.make("Clip", [value, *ends], np.float64, real)
    return nodes.cast(value, held.dtype)


def requantized(nodes: Nodes, held: Integers, wanted: Integers) -> ir.Value:
    """Requantize a value to the scale, zero point and type of `wanted`; return it unchanged if these are equal."""
    if held.same_numbers(wanted):
        return held.value
    multiplier = held.one_scale()[0] / wanted.one_scale()[0]
    return rounded(nodes, scaled(nodes, centered(nodes, held, np.int32), multiplier), wanted)


_INT32 = 1 << 31


def lower_sum(at: Lowering) -> list[ir.Value]:
    """Lower Add, Sub and Sum: each operand times its multiplier, summed in float64 in order."""
    nodes, result = at.nodes, at.result(0)
    scale = result.held.one_scale()[0]
    operator = "Sub" if at.node.op_type == "Sub" else "Add"

    def term(index: int) -> ir.Value:
        held = at.operand(index)
        return scaled(nodes, centered(nodes, held, np.int32), held.one_scale()[0] / scale)

    total = term(0)
    for index in range(1, len(at.node.inputs)):
        total = nodes.make(operator, [total, term(index)], np.float64, at.shape)
    return [rounded(nodes, total, result.held, bounds_of(result.held, result.activation))]


def lower_mul(at: Lowering) -> list[ir.Value]:
    """Lower Mul to the integer product times one multiplier."""
    nodes, result = at.nodes, at.result(0)
    one, other = at.operand(0), at.operand(1)
    if one.largest * other.largest >= _INT32:
        raise NotIntegerError("a product of its operands may be too large for int32")
    multiplier = one.one_scale()[0] * other.one_scale()[0] / result.held.one_scale()[0]
    factors = [centered(nodes, held, np.int32) for held in (one, other)]
    product = nodes.make("Mul", factors, np.int32, at.shape)
    return [rounded(nodes, scaled(nodes, product, multiplier), result.held, bounds_of(result.held, result.activation))]


def lower_prelu(at: Lowering) -> list[ir.Value]:
    """Lower PRelu with per-channel slopes: positive and negative part, each times its multiplier."""
    nodes, result, held = at.nodes, at.result(0), at.operand(0)
    slope = at.constant(1)
    if slope is None:
        raise NotIntegerError("its slope is computed")
    scale, wanted = held.one_scale()[0], result.held.one_scale()[0]
    exact = nodes.cast(centered(nodes, held, np.int32), np.float64)
    zero = nodes.constant(0, np.float64, "zero")
    parts = []
    slopes = slope.astype(np.float64) * scale / wanted
    for operator, multiplier in (("Max", scale / wanted), ("Min", slopes)):
        part = nodes.make(operator, [exact, zero], np.float64, held.value)
        parts.append(scaled(nodes, part, multiplier, f"{operator.lower()}_multiplier"))
    total = nodes.make("Add", parts, np.float64, at.shape)
    return [rounded(nodes, total, result.held, bounds_of(result.held, result.activation))]


def lower_batch_norm(at: Lowering) -> list[ir.Value]:
    """Lower BatchNormalization to one multiplier and one addend per channel."""
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
    term = scaled(nodes, centered(nodes, held, np.int32), (slope * scale / wanted).reshape(channels))
    shift = nodes.constant(((summand - mean * slope) / wanted).reshape(channels), np.float64, nodes.named("shift"))
    total = nodes.make("Add", [term, shift], np.float64, at.shape)
    return [rounded(nodes, total, result.held, bounds_of(result.held, result.activation))]
