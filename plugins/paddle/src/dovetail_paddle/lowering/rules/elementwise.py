"""Rules for elementwise arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.lowering.op import OpNotLowered

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter
    from dovetail_paddle.lowering.op import PdOp
    from dovetail_paddle.lowering.rules import Rule


def one_type(values: Iterable[ir.Value | None]) -> None:
    """Check that operands have one type; conversions to mixed precision may leave mismatches."""
    found = dict.fromkeys(value.dtype.name.lower() for value in values if value is not None and value.dtype is not None)
    if len(found) > 1:
        raise OpNotLowered(f"its operands are of different types, {' and '.join(found)}: the program is inconsistent")


def unary(onnx_name: str) -> Rule:
    """Create the rule of a unary operator with another name in ONNX."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        return emit(onnx_name, [op[op.operator.operands[0].name]])

    return rule


def binary(onnx_name: str) -> Rule:
    """Create the rule of a binary operator with another name in ONNX."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        one_type([op.original("x"), op.original("y")])
        return emit(onnx_name, [op["x"], op["y"]])

    return rule


def alias(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Return the operand of an operator that only copies it."""
    return op["x"]


def scale(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `scale * x + bias`, or `scale * (x + bias)`."""
    factor, bias, value, dtype = op.constant("scale"), op.attr("bias"), op["x"], op.dtype("x")
    if not op.attr("bias_after_scale") and bias:
        value = emit("Add", [value, emit.scalar(bias, dtype)])
        bias = 0.0
    if factor is None:
        given = op["scale"]
        given = given if op.operand("scale").dtype == dtype else emit.cast(given, dtype)
        value = emit("Mul", [value, given])
    elif factor.reshape(-1)[0] != 1:
        value = emit("Mul", [value, emit.scalar(factor.reshape(-1)[0], dtype)])
    return emit("Add", [value, emit.scalar(bias, dtype)]) if bias else value


def cast(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Cast, unless the value has the type already; a narrowed int64 value is recovered without a node."""
    import onnx_ir as ir

    dtype = onnx_type(op.attr("dtype"))
    if dtype is None:
        raise OpNotLowered(f"it casts to '{op.attr('dtype')}', which is no type of ONNX")
    value = op["x"]
    if dtype == op.dtype("x"):
        return value
    wide = emit.wide(value)
    if wide is not None and dtype == ir.DataType.INT64:
        return wide
    return emit.cast(value, dtype)


def add_n(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Sum several tensors."""
    items = op.items("inputs")
    one_type(op.originals("inputs"))
    if len(items) == 1:
        return items[0]
    return emit("Add" if len(items) == 2 else "Sum", items)


def power(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Raise to a constant exponent."""
    exponent, value, dtype = op.attr("y"), op["x"], op.dtype("x")
    if exponent == 1:
        return value
    return emit("Pow", [value, emit.scalar(exponent, dtype)])


def square(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Square each element."""
    return emit("Mul", [op["x"], op["x"]])


def rsqrt(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the reciprocal square root."""
    return emit("Reciprocal", [emit("Sqrt", [op["x"]])])


def expm1(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `exp(x) - 1`."""
    return emit("Sub", [emit("Exp", [op["x"]]), emit.scalar(1, op.dtype("x"))])


def log1p(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `log(1 + x)`."""
    return emit("Log", [emit("Add", [op["x"], emit.scalar(1, op.dtype("x"))])])


def log_of(base: float) -> Rule:
    """Create the rule of a logarithm with another base."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        import math

        return emit("Mul", [emit("Log", [op["x"]]), emit.scalar(1 / math.log(base), op.dtype("x"))])

    return rule


def trunc(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Round toward zero."""
    value = op["input"]
    if op.dtype("input").is_integer():
        return value
    return emit("Mul", [emit("Sign", [value]), emit("Floor", [emit("Abs", [value])])])


def rounded(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Round to the nearest integer, half to even as in Paddle 3."""
    if op.attr("decimals"):
        factor = emit.scalar(10.0 ** op.attr("decimals"), op.dtype("x"))
        return emit("Div", [emit("Round", [emit("Mul", [op["x"], factor])]), factor])
    return emit("Round", [op["x"]])


def floor_divide(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Divide and round down; ONNX rounds integer quotients toward zero."""
    x, y = op["x"], op["y"]
    quotient = emit("Div", [x, y])
    if not op.dtype("x").is_integer():
        return emit("Floor", [quotient])
    zero, one = (emit.scalar(number, op.dtype("x")) for number in (0, 1))
    remainder = emit("Mod", [x, y])
    inexact = emit("Not", [emit("Equal", [remainder, zero])])
    signs = emit("Less", [emit("Mul", [emit("Sign", [x]), emit("Sign", [y])]), zero])
    down = emit("And", [inexact, signs])
    return emit("Where", [down, emit("Sub", [quotient, one]), quotient])


def remainder(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the remainder with the sign of the divisor."""
    x, y = op["x"], op["y"]
    if op.dtype("x").is_integer():
        return emit("Mod", [x, y])
    return emit("Sub", [x, emit("Mul", [emit("Floor", [emit("Div", [x, y])]), y])])


def clip(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Clip to two bounds, which may be computed."""
    dtype = op.dtype("x")
    bounds = []
    for name in ("min", "max"):
        known = op.constant(name)
        if known is not None:
            bounds.append(emit.scalar(known.reshape(-1)[0], dtype))
            continue
        value = op[name]
        if op.operand(name).dtype != dtype:
            value = emit.cast(value, dtype)
        bounds.append(value if op.shape(name) == () else emit("Reshape", [value, emit.ints([])]))
    return emit("Clip", [op["x"], *bounds])


def lerp(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `x + weight * (y - x)`."""
    return emit("Add", [op["x"], emit("Mul", [op["weight"], emit("Sub", [op["y"], op["x"]])])])


def increment(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `x + value`."""
    return emit("Add", [op["x"], emit.scalar(op.attr("value"), op.dtype("x"))])


def heaviside(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Return 0 below zero, 1 above, and `y` at zero."""
    dtype = op.dtype("x")
    zero = emit.scalar(0, dtype)
    above = emit.cast(emit("Greater", [op["x"], zero]), dtype)
    return emit("Where", [emit("Equal", [op["x"], zero]), op["y"], above])


def atan2(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the angle of a point."""
    import math

    y, x, dtype = op["x"], op["y"], op.dtype("x")
    zero = emit.scalar(0, dtype)
    angle = emit("Atan", [emit("Div", [y, x])])
    half = emit("Where", [emit("Less", [y, zero]), emit.scalar(-math.pi, dtype), emit.scalar(math.pi, dtype)])
    angle = emit("Where", [emit("Less", [x, zero]), emit("Add", [angle, half]), angle])
    origin = emit("And", [emit("Equal", [x, zero]), emit("Equal", [y, zero])])
    return emit("Where", [origin, zero, angle])


def copysign(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Combine the magnitude of one operand with the sign of another; a reciprocal detects negative zero."""
    dtype = op.dtype("y")
    zero = emit.scalar(0, dtype)
    negative = emit("Less", [op["y"], zero])
    below = emit("And", [emit("Equal", [op["y"], zero]), emit("Less", [emit("Reciprocal", [op["y"]]), zero])])
    size = emit("Abs", [op["x"]])
    return emit("Where", [emit("Or", [negative, below]), emit("Neg", [size]), size])


_UNARY = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log",
    "reciprocal": "Reciprocal", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan",
    "isnan": "IsNaN", "isinf": "IsInf",
}  # fmt: skip
_BINARY = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min",
    "fmax": "Max", "fmin": "Min", "elementwise_pow": "Pow",
}  # fmt: skip

RULES = {
    **{name: unary(onnx_name) for name, onnx_name in _UNARY.items()},
    **{name: binary(onnx_name) for name, onnx_name in _BINARY.items()},
    **dict.fromkeys(("assign", "assign_out", "share_data", "memcpy_h2d", "memcpy_d2h"), alias),
    "scale": scale, "cast": cast, "add_n": add_n, "pow": power, "square": square, "rsqrt": rsqrt, "expm1": expm1,
    "log1p": log1p, "log2": log_of(2), "log10": log_of(10), "trunc": trunc, "round": rounded,
    "floor_divide": floor_divide, "remainder": remainder, "clip": clip, "lerp": lerp, "increment": increment,
    "heaviside": heaviside, "atan2": atan2, "copysign": copysign,
}  # fmt: skip
