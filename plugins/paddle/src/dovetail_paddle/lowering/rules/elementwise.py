"""Arithmetic, comparison and logic, element by element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.lowering.op import NotLowered
from dovetail_paddle.lowering.shapes import as_rank

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter
    from dovetail_paddle.lowering.op import PdOp
    from dovetail_paddle.lowering.rules import Rule

__all__ = ["RULES"]


def one_type(values: Iterable[ir.Value | None]) -> None:
    """Refuse operands of different types, as conversions to mixed precision leave them behind."""
    found = dict.fromkeys(value.dtype.name.lower() for value in values if value is not None and value.dtype is not None)
    if len(found) > 1:
        raise NotLowered(f"its operands are of different types, {' and '.join(found)}: the program is inconsistent")


def unary(onnx_name: str) -> Rule:
    """The rule of an operator that ONNX has under another name."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        return emit(onnx_name, [op[op.operator.operands[0].name]])

    return rule


def binary(onnx_name: str) -> Rule:
    """The rule of an operator on two tensors that ONNX has under another name."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        one_type([op.original("x"), op.original("y")])
        return emit(onnx_name, [op["x"], op["y"]])

    return rule


def alias(op: PdOp, emit: Emitter) -> ir.Value:
    """Operators that copy a tensor."""
    return op["x"]


def scale(op: PdOp, emit: Emitter) -> ir.Value:
    """`scale * x + bias`, or `scale * (x + bias)`."""
    factor, bias, value, dtype = op.constant("scale"), op.attr("bias"), op["x"], op.dtype("x")
    if not op.attr("bias_after_scale") and bias:
        value = emit("Add", [value, emit.scalar(bias, dtype)])
        bias = 0.0
    if factor is None:
        given = op["scale"]
        given = given if op.original("scale").dtype == dtype else emit.cast(given, dtype)
        value = emit("Mul", [value, given])
    elif factor.reshape(-1)[0] != 1:
        value = emit("Mul", [value, emit.scalar(factor.reshape(-1)[0], dtype)])
    return emit("Add", [value, emit.scalar(bias, dtype)]) if bias else value


def cast(op: PdOp, emit: Emitter) -> ir.Value:
    """Casts; one to the type that the value has is none, and int64 that was narrowed is at hand."""
    import onnx_ir as ir

    dtype = onnx_type(op.attr("dtype"))
    if dtype is None:
        raise NotLowered(f"it casts to '{op.attr('dtype')}', which is no type of ONNX")
    value = op["x"]
    if dtype == op.dtype("x"):
        return value
    wide = emit.wide(value)
    if wide is not None and dtype == ir.DataType.INT64:
        return wide
    return emit.cast(value, dtype)


def add_n(op: PdOp, emit: Emitter) -> ir.Value:
    """The sum of several tensors."""
    items = op.items("inputs")
    one_type(op.originals("inputs"))
    if len(items) == 1:
        return items[0]
    return emit("Add" if len(items) == 2 else "Sum", items)


def power(op: PdOp, emit: Emitter) -> ir.Value:
    """A power with a constant exponent."""
    exponent, value, dtype = op.attr("y"), op["x"], op.dtype("x")
    if exponent == 1:
        return value
    return emit("Pow", [value, emit.scalar(exponent, dtype)])


def square(op: PdOp, emit: Emitter) -> ir.Value:
    """The square."""
    return emit("Mul", [op["x"], op["x"]])


def rsqrt(op: PdOp, emit: Emitter) -> ir.Value:
    """One over the root."""
    return emit("Reciprocal", [emit("Sqrt", [op["x"]])])


def expm1(op: PdOp, emit: Emitter) -> ir.Value:
    """`exp(x) - 1`."""
    return emit("Sub", [emit("Exp", [op["x"]]), emit.scalar(1, op.dtype("x"))])


def log1p(op: PdOp, emit: Emitter) -> ir.Value:
    """`log(1 + x)`."""
    return emit("Log", [emit("Add", [op["x"], emit.scalar(1, op.dtype("x"))])])


def log_of(base: float) -> Rule:
    """The rule of a logarithm to another base."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        import math

        return emit("Mul", [emit("Log", [op["x"]]), emit.scalar(1 / math.log(base), op.dtype("x"))])

    return rule


def trunc(op: PdOp, emit: Emitter) -> ir.Value:
    """Rounding toward zero."""
    value = op["input"]
    if op.dtype("input").is_integer():
        return value
    return emit("Mul", [emit("Sign", [value]), emit("Floor", [emit("Abs", [value])])])


def rounded(op: PdOp, emit: Emitter) -> ir.Value:
    """Rounding to the nearest integer, halves to even as Paddle 3 does."""
    if op.attr("decimals"):
        factor = emit.scalar(10.0 ** op.attr("decimals"), op.dtype("x"))
        return emit("Div", [emit("Round", [emit("Mul", [op["x"], factor])]), factor])
    return emit("Round", [op["x"]])


def floor_divide(op: PdOp, emit: Emitter) -> ir.Value:
    """Division rounded down; ONNX rounds integers toward zero."""
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


def remainder(op: PdOp, emit: Emitter) -> ir.Value:
    """The remainder with the sign of the divisor."""
    x, y = op["x"], op["y"]
    if op.dtype("x").is_integer():
        return emit("Mod", [x, y])
    return emit("Sub", [x, emit("Mul", [emit("Floor", [emit("Div", [x, y])]), y])])


def clip(op: PdOp, emit: Emitter) -> ir.Value:
    """Values between two bounds, which may be computed."""
    dtype = op.dtype("x")
    bounds = []
    for name in ("min", "max"):
        known = op.constant(name)
        if known is not None:
            bounds.append(emit.scalar(known.reshape(-1)[0], dtype))
            continue
        value, original = op[name], op.original(name)
        if original.dtype != dtype:
            value = emit.cast(value, dtype)
        bounds.append(value if op.shape(name) == () else emit("Reshape", [value, emit.ints([])]))
    return emit("Clip", [op["x"], *bounds])


def bitwise(logical: str, on_bits: str) -> Rule:
    """The rule of an operator that is logic on booleans."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        import onnx_ir as ir

        name = logical if op.dtype("x") == ir.DataType.BOOL else on_bits
        return emit(name, [op[argument.name] for argument in op.operator.operands])

    return rule


def logical(onnx_name: str) -> Rule:
    """The rule of logic, where numbers count as true unless they are zero."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        import onnx_ir as ir

        operands = []
        for argument in op.operator.operands:
            value = op[argument.name]
            boolean = op.dtype(argument.name) == ir.DataType.BOOL
            operands.append(value if boolean else emit.cast(value, ir.DataType.BOOL))
        return emit(onnx_name, operands)

    return rule


def not_equal(op: PdOp, emit: Emitter) -> ir.Value:
    """Inequality."""
    return emit("Not", [emit("Equal", [op["x"], op["y"]])])


def isfinite(op: PdOp, emit: Emitter) -> ir.Value:
    """Neither infinite nor NaN: only then a number minus itself is zero."""
    difference = emit("Sub", [op["x"], op["x"]])
    return emit("Equal", [difference, emit.scalar(0, op.dtype("x"))])


def lerp(op: PdOp, emit: Emitter) -> ir.Value:
    """`x + weight * (y - x)`."""
    return emit("Add", [op["x"], emit("Mul", [op["weight"], emit("Sub", [op["y"], op["x"]])])])


def increment(op: PdOp, emit: Emitter) -> ir.Value:
    """`x + value`."""
    return emit("Add", [op["x"], emit.scalar(op.attr("value"), op.dtype("x"))])


def heaviside(op: PdOp, emit: Emitter) -> ir.Value:
    """0 below zero, 1 above, `y` at zero."""
    dtype = op.dtype("x")
    zero = emit.scalar(0, dtype)
    above = emit.cast(emit("Greater", [op["x"], zero]), dtype)
    return emit("Where", [emit("Equal", [op["x"], zero]), op["y"], above])


def isclose(op: PdOp, emit: Emitter) -> ir.Value:
    """Equal, or within a tolerance of the second operand."""
    x, y, dtype = op["x"], op["y"], op.dtype("x")
    relative, absolute = (emit.scalar(op.number(name), dtype) for name in ("rtol", "atol"))
    limit = emit("Add", [absolute, emit("Mul", [relative, emit("Abs", [y])])])
    near = emit("LessOrEqual", [emit("Abs", [emit("Sub", [x, y])]), limit])
    # What is infinite is within an infinite tolerance of everything.
    near = emit("And", [near, emit("Not", [emit("IsInf", [emit("Sub", [x, y])])])])
    close = emit("Or", [emit("Equal", [x, y]), near])
    if op.attr("equal_nan"):
        close = emit("Or", [close, emit("And", [emit("IsNaN", [x]), emit("IsNaN", [y])])])
    return close


def _all(flags: ir.Value, op: PdOp, emit: Emitter) -> ir.Value:
    import onnx_ir as ir

    least = emit("ReduceMin", [emit.cast(flags, ir.DataType.INT32)], {"keepdims": 0})
    made = as_rank(emit.cast(least, ir.DataType.BOOL), 0, op.result_shape(), emit)
    made.type = ir.TensorType(ir.DataType.BOOL)  # programs declare the type of the operands
    return made


def allclose(op: PdOp, emit: Emitter) -> ir.Value:
    """Whether all elements are close."""
    return _all(isclose(op, emit), op, emit)


def equal_all(op: PdOp, emit: Emitter) -> ir.Value:
    """Whether all elements are equal."""
    return _all(emit("Equal", [op["x"], op["y"]]), op, emit)


def shifted(left: bool) -> Rule:
    """The rule of a shift of bits, which is a product with a power of 2; ONNX shifts unsigned integers alone."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        if not op.attr("is_arithmetic"):
            raise NotLowered("it shifts in zeros, and integers are signed")
        factor = emit("Pow", [emit.scalar(2, op.dtype("x")), op["y"]])
        if left:
            return emit("Mul", [op["x"], factor])
        rest = emit("Mod", [op["x"], factor])
        return emit("Div", [emit("Sub", [op["x"], rest]), factor])

    return rule


def atan2(op: PdOp, emit: Emitter) -> ir.Value:
    """The angle of a point."""
    import math

    y, x, dtype = op["x"], op["y"], op.dtype("x")
    zero = emit.scalar(0, dtype)
    angle = emit("Atan", [emit("Div", [y, x])])
    half = emit("Where", [emit("Less", [y, zero]), emit.scalar(-math.pi, dtype), emit.scalar(math.pi, dtype)])
    angle = emit("Where", [emit("Less", [x, zero]), emit("Add", [angle, half]), angle])
    origin = emit("And", [emit("Equal", [x, zero]), emit("Equal", [y, zero])])
    return emit("Where", [origin, zero, angle])


def copysign(op: PdOp, emit: Emitter) -> ir.Value:
    """The size of one operand with the sign of another; a zero that is negative is seen by its reciprocal."""
    dtype = op.dtype("y")
    zero = emit.scalar(0, dtype)
    negative = emit("Less", [op["y"], zero])
    below = emit("And", [emit("Equal", [op["y"], zero]), emit("Less", [emit("Reciprocal", [op["y"]]), zero])])
    size = emit("Abs", [op["x"]])
    return emit("Where", [emit("Or", [negative, below]), emit("Neg", [size]), size])


def ordered(onnx_name: str) -> Rule:
    """The rule of a comparison; false is below true, which ONNX does not compare."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        import onnx_ir as ir

        one_type([op.original("x"), op.original("y")])
        values = [op["x"], op["y"]]
        if op.dtype("x") == ir.DataType.BOOL:
            values = [emit.cast(value, ir.DataType.INT32) for value in values]
        return emit(onnx_name, values)

    return rule


_UNARY = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log",
    "reciprocal": "Reciprocal", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan",
    "isnan": "IsNaN", "isinf": "IsInf",
}  # fmt: skip
_BINARY = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min",
    "fmax": "Max", "fmin": "Min", "elementwise_pow": "Pow", "equal": "Equal",
}  # fmt: skip

RULES = {
    **{name: unary(onnx_name) for name, onnx_name in _UNARY.items()},
    **{name: binary(onnx_name) for name, onnx_name in _BINARY.items()},
    **dict.fromkeys(("assign", "assign_out", "share_data", "memcpy_h2d", "memcpy_d2h"), alias),
    "less_than": ordered("Less"), "less_equal": ordered("LessOrEqual"), "greater_than": ordered("Greater"),
    "greater_equal": ordered("GreaterOrEqual"),
    "scale": scale, "cast": cast, "add_n": add_n, "pow": power, "square": square, "rsqrt": rsqrt, "expm1": expm1,
    "log1p": log1p, "log2": log_of(2), "log10": log_of(10), "trunc": trunc, "round": rounded,
    "floor_divide": floor_divide, "remainder": remainder, "clip": clip, "not_equal": not_equal, "isfinite": isfinite,
    "lerp": lerp, "increment": increment, "heaviside": heaviside,
    "bitwise_and": bitwise("And", "BitwiseAnd"), "bitwise_or": bitwise("Or", "BitwiseOr"),
    "bitwise_xor": bitwise("Xor", "BitwiseXor"), "bitwise_not": bitwise("Not", "BitwiseNot"),
    "logical_and": logical("And"), "logical_or": logical("Or"), "logical_xor": logical("Xor"),
    "logical_not": logical("Not"), "isclose": isclose, "allclose": allclose, "equal_all": equal_all,
    "bitwise_left_shift": shifted(True), "bitwise_right_shift": shifted(False), "atan2": atan2, "copysign": copysign,
}  # fmt: skip
