"""Reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.lowering.op import NotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_rank, int_list

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter
    from dovetail_paddle.lowering.rules import Rule


def reduced(op: PdOp, emit: Emitter, onnx_name: str, value: ir.Value, keep: bool) -> ir.Value:
    """A reduction over the axes of an operator; no axis stands for all of them."""
    axes = op.known_ints("axis")
    whole = axes is not None and (not axes or ("reduce_all" in op.operator.argument and op.attr("reduce_all")))
    if op.shape("x") is not None:
        whole = whole or (axes is not None and len(axes) == op.rank("x"))
    if whole:
        made = emit(onnx_name, [value], {"keepdims": int(keep)})
        return made if keep else as_rank(made, 0, op.result_shape(), emit)
    inputs = [value, emit.ints(axes) if axes is not None else int_list(op, "axis", emit)]
    return emit(onnx_name, inputs, {"keepdims": int(keep)})


def _keeps(op: PdOp) -> bool:
    return op.attr("keep_dim" if "keep_dim" in op.operator.argument else "keepdim")


def reduction(onnx_name: str) -> Rule:
    """The rule of a reduction."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        value = op["x"]
        dtype = onnx_type(op.attr("dtype")) if "dtype" in op.operator.argument else None
        if dtype is None and op.name in ("sum", "prod"):
            dtype = op.result_dtype()
        if dtype is not None and dtype != op.dtype("x"):
            value = emit.cast(value, dtype)
        return reduced(op, emit, onnx_name, value, _keeps(op))

    return rule


def mean_all(op: PdOp, emit: Emitter) -> ir.Value:
    """The mean of all elements."""
    return as_rank(emit("ReduceMean", [op["x"]], {"keepdims": 0}), 0, op.result_shape(), emit)


def squared_l2_norm(op: PdOp, emit: Emitter) -> ir.Value:
    """The sum of squares."""
    return as_rank(emit("ReduceSumSquare", [op["x"]], {"keepdims": 0}), 0, op.result_shape(), emit)


def logic(onnx_name: str) -> Rule:
    """The rule of `all` and `any`: the least and the greatest of zeros and ones."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        import onnx_ir as ir

        value = op["x"]
        if op.dtype("x") != ir.DataType.BOOL:
            value = emit.cast(value, ir.DataType.BOOL)
        made = reduced(op, emit, onnx_name, emit.cast(value, ir.DataType.INT32), _keeps(op))
        return emit.cast(made, ir.DataType.BOOL)

    return rule


def p_norm(op: PdOp, emit: Emitter) -> ir.Value:
    """The norm of an order along an axis, or of all elements."""
    order, keep = op.attr("porder"), op.attr("keepdim")
    axes = [] if op.attr("asvector") else [emit.ints([op.attr("axis")])]
    attributes = {"keepdims": int(keep)}

    def reduce(name: str, value: ir.Value) -> ir.Value:
        made = emit(name, [value, *axes], attributes)
        return made if axes or keep else as_rank(made, 0, op.result_shape(), emit)

    if order in (1, 2):
        return reduce(f"ReduceL{int(order)}", op["x"])
    size = emit("Abs", [op["x"]])
    if order in (float("inf"), float("-inf")):
        return reduce("ReduceMax" if order > 0 else "ReduceMin", size)
    dtype = op.dtype("x")
    if order == 0:
        return reduce("ReduceSum", emit("Sign", [size]))
    powers = reduce("ReduceSum", emit("Pow", [size, emit.scalar(order, dtype)]))
    return emit("Pow", [powers, emit.scalar(1 / order, dtype)])


def dist(op: PdOp, emit: Emitter) -> ir.Value:
    """The norm of a difference."""
    order = op.attr("p")
    if order not in (1, 2):
        raise NotLowered(f"its norm is of order {order}, and 1 and 2 are supported")
    made = emit(f"ReduceL{int(order)}", [emit("Sub", [op["x"], op["y"]])], {"keepdims": 0})
    return as_rank(made, 0, op.result_shape(), emit)


def cumsum(op: PdOp, emit: Emitter) -> ir.Value:
    """Sums so far along an axis."""
    import numpy as np

    value, axis = op["x"], int(op.number("axis"))
    if op.attr("flatten"):
        value, axis = emit("Reshape", [value, emit.ints([-1])]), 0
    elif op.shape("x") == ():
        raise NotLowered("its input has no axis")
    attributes = {"exclusive": int(op.attr("exclusive")), "reverse": int(op.attr("reverse"))}
    result = op.result_dtype()
    if result is not None and result != op.dtype("x"):
        value = emit.cast(value, result)
    return emit("CumSum", [value, emit.constant(np.array(axis, np.int64))], attributes)


RULES = {
    "sum": reduction("ReduceSum"), "mean": reduction("ReduceMean"), "max": reduction("ReduceMax"),
    "min": reduction("ReduceMin"), "prod": reduction("ReduceProd"), "logsumexp": reduction("ReduceLogSumExp"),
    "frobenius_norm": reduction("ReduceL2"), "mean_all": mean_all, "squared_l2_norm": squared_l2_norm,
    "amax": reduction("ReduceMax"), "amin": reduction("ReduceMin"), "dist": dist,
    "all": logic("ReduceMin"), "any": logic("ReduceMax"), "p_norm": p_norm, "cumsum": cumsum,
}  # fmt: skip
