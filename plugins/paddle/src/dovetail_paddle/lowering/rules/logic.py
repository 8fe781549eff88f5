"""Rules for elementwise comparison, logic and bit operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered
from dovetail_paddle.lowering.rules.elementwise import binary, one_type
from dovetail_paddle.lowering.shapes import as_rank

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter
    from dovetail_paddle.lowering.op import PdOp
    from dovetail_paddle.lowering.rules import Rule


def bitwise(logical: str, on_bits: str) -> Rule:
    """Create the rule of a bitwise operator, which is logical on booleans."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        import onnx_ir as ir

        name = logical if op.dtype("x") == ir.DataType.BOOL else on_bits
        return emit(name, [op[argument.name] for argument in op.operator.operands])

    return rule


def logical(onnx_name: str) -> Rule:
    """Create the rule of a logical operator; nonzero numbers count as true."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        import onnx_ir as ir

        operands = []
        for argument in op.operator.operands:
            value = op[argument.name]
            boolean = op.dtype(argument.name) == ir.DataType.BOOL
            operands.append(value if boolean else emit.cast(value, ir.DataType.BOOL))
        return emit(onnx_name, operands)

    return rule


def not_equal(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compare for inequality."""
    return emit("Not", [emit("Equal", [op["x"], op["y"]])])


def isfinite(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Check for finite numbers: only for these is `x - x` zero."""
    difference = emit("Sub", [op["x"], op["x"]])
    return emit("Equal", [difference, emit.scalar(0, op.dtype("x"))])


def isclose(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Check for equality within a tolerance relative to the second operand."""
    x, y, dtype = op["x"], op["y"], op.dtype("x")
    relative, absolute = (emit.scalar(op.number(name), dtype) for name in ("rtol", "atol"))
    limit = emit("Add", [absolute, emit("Mul", [relative, emit("Abs", [y])])])
    near = emit("LessOrEqual", [emit("Abs", [emit("Sub", [x, y])]), limit])
    # Everything is within an infinite tolerance, so exclude infinite differences.
    near = emit("And", [near, emit("Not", [emit("IsInf", [emit("Sub", [x, y])])])])
    close = emit("Or", [emit("Equal", [x, y]), near])
    if op.attr("equal_nan"):
        close = emit("Or", [close, emit("And", [emit("IsNaN", [x]), emit("IsNaN", [y])])])
    return close


def _all(flags: ir.Value, op: PdOp, emit: GraphEmitter) -> ir.Value:
    import onnx_ir as ir

    least = emit("ReduceMin", [emit.cast(flags, ir.DataType.INT32)], {"keepdims": 0})
    made = as_rank(emit.cast(least, ir.DataType.BOOL), 0, op.result_shape(), emit)
    made.type = ir.TensorType(ir.DataType.BOOL)  # programs declare the type of the operands
    return made


def allclose(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Check whether all elements are close."""
    return _all(isclose(op, emit), op, emit)


def equal_all(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Check whether all elements are equal."""
    return _all(emit("Equal", [op["x"], op["y"]]), op, emit)


def shifted(left: bool) -> Rule:
    """Create the rule of a bit shift, a product with a power of 2; ONNX only shifts unsigned integers."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        if not op.attr("is_arithmetic"):
            raise OpNotLowered("it shifts in zeros, and integers are signed")
        factor = emit("Pow", [emit.scalar(2, op.dtype("x")), op["y"]])
        if left:
            return emit("Mul", [op["x"], factor])
        rest = emit("Mod", [op["x"], factor])
        return emit("Div", [emit("Sub", [op["x"], rest]), factor])

    return rule


def ordered(onnx_name: str) -> Rule:
    """Create the rule of an ordered comparison; booleans, which ONNX does not compare, order false below true."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        import onnx_ir as ir

        one_type([op.original("x"), op.original("y")])
        values = [op["x"], op["y"]]
        if op.dtype("x") == ir.DataType.BOOL:
            values = [emit.cast(value, ir.DataType.INT32) for value in values]
        return emit(onnx_name, values)

    return rule


RULES = {
    "equal": binary("Equal"), "not_equal": not_equal, "less_than": ordered("Less"),
    "less_equal": ordered("LessOrEqual"), "greater_than": ordered("Greater"),
    "greater_equal": ordered("GreaterOrEqual"), "isfinite": isfinite, "isclose": isclose, "allclose": allclose,
    "equal_all": equal_all,
    "logical_and": logical("And"), "logical_or": logical("Or"), "logical_xor": logical("Xor"),
    "logical_not": logical("Not"),
    "bitwise_and": bitwise("And", "BitwiseAnd"), "bitwise_or": bitwise("Or", "BitwiseOr"),
    "bitwise_xor": bitwise("Xor", "BitwiseXor"), "bitwise_not": bitwise("Not", "BitwiseNot"),
    "bitwise_left_shift": shifted(True), "bitwise_right_shift": shifted(False),
}  # fmt: skip
