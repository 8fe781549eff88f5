"""Rules for reductions and scans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_rank, int_list

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter
    from dovetail_paddle.lowering.rules import Rule


def reduced(op: PdOp, emit: GraphEmitter, onnx_name: str, value: ir.Value, keep: bool) -> ir.Value:
    """Reduce over the axes of an operator; an empty list means all axes."""
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
    """Create the rule of a reduction."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        value = op["x"]
        dtype = onnx_type(op.attr("dtype")) if "dtype" in op.operator.argument else None
        if dtype is None and op.name in ("sum", "prod"):
            dtype = op.result_dtype()
        if dtype is not None and dtype != op.dtype("x"):
            value = emit.cast(value, dtype)
        return reduced(op, emit, onnx_name, value, _keeps(op))

    return rule


def mean_all(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the mean of all elements."""
    return as_rank(emit("ReduceMean", [op["x"]], {"keepdims": 0}), 0, op.result_shape(), emit)


def squared_l2_norm(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the sum of squares."""
    return as_rank(emit("ReduceSumSquare", [op["x"]], {"keepdims": 0}), 0, op.result_shape(), emit)


def logic(onnx_name: str) -> Rule:
    """Create the rule of `all` or `any`: the minimum or maximum of zeros and ones."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        import onnx_ir as ir

        value = op["x"]
        if op.dtype("x") != ir.DataType.BOOL:
            value = emit.cast(value, ir.DataType.BOOL)
        made = reduced(op, emit, onnx_name, emit.cast(value, ir.DataType.INT32), _keeps(op))
        return emit.cast(made, ir.DataType.BOOL)

    return rule


def p_norm(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the p-norm along an axis, or of all elements."""
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


def dist(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the norm of a difference."""
    order = op.attr("p")
    if order not in (1, 2):
        raise OpNotLowered(f"its norm is of order {order}, and 1 and 2 are supported")
    made = emit(f"ReduceL{int(order)}", [emit("Sub", [op["x"], op["y"]])], {"keepdims": 0})
    return as_rank(made, 0, op.result_shape(), emit)


def cumsum(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the cumulative sum along an axis."""
    import numpy as np

    value, axis = op["x"], int(op.number("axis"))
    if op.attr("flatten"):
        value, axis = emit("Reshape", [value, emit.ints([-1])]), 0
    elif op.shape("x") == ():
        raise OpNotLowered("its input has no axis")
    attributes = {"exclusive": int(op.attr("exclusive")), "reverse": int(op.attr("reverse"))}
    result = op.result_dtype()
    if result is not None and result != op.dtype("x"):
        value = emit.cast(value, result)
    return emit("CumSum", [value, emit.constant(np.array(axis, np.int64))], attributes)


_MOST = 1 << 12  # extent of the axis; the intermediate is quadratic in it


def _prefixes(
    op: PdOp, value: ir.Value, axis: int, extent: int | None, neutral: ir.Value, emit: GraphEmitter
) -> tuple[ir.Value, list[int] | None]:
    """Return all prefixes along an axis, padded, on a new last axis, and the permutation that moved the axis."""
    import numpy as np

    if extent is None or extent > _MOST:
        raise OpNotLowered(f"the extent of its axis is open, or above {_MOST}")
    rank = op.rank("x")
    order = [*(at for at in range(rank) if at != axis), axis]
    if order != list(range(rank)):
        value = emit("Transpose", [value], {"perm": order})
    reverse = "reverse" in op.operator.argument and op.attr("reverse")
    exclusive = "exclusive" in op.operator.argument and op.attr("exclusive")
    mask = np.tril(np.ones((extent, extent), bool), -1 if exclusive else 0)
    mask = mask.T if reverse else mask
    spread = emit("Where", [emit.constant(mask), emit("Unsqueeze", [value, emit.ints([-2])]), neutral])
    return spread, None if order == list(range(rank)) else [order.index(at) for at in range(rank)]


def scan(onnx_name: str, neutral: float, axis_name: str) -> Rule:
    """Create the rule of a scan: a reduction of every prefix."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        value, axis, dtype = op["x"], op.axis(op.attr(axis_name), "x"), op.dtype("x")
        shape = op.ranked_shape("x")
        extent, flat = shape[axis], "flatten" in op.operator.argument and op.attr("flatten")
        if flat and len(shape) > 1:
            raise OpNotLowered("it goes over all elements of a tensor with several axes")
        spread, back = _prefixes(op, value, axis, extent, emit.scalar(neutral, dtype), emit)
        made = emit(onnx_name, [spread, emit.ints([-1])], {"keepdims": 0})
        return made if back is None else emit("Transpose", [made], {"perm": back})

    return rule


def extremum(largest: bool) -> Rule:
    """Create the rule of the running extremum and its last position."""

    def rule(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
        import numpy as np

        axis, dtype = op.axis(op.attr("axis"), "x"), op.dtype("x")
        limits = (np.iinfo if dtype.is_integer() else np.finfo)(dtype.numpy())
        neutral = emit.scalar(limits.min if largest else limits.max, dtype)
        spread, back = _prefixes(op, op["x"], axis, op.ranked_shape("x")[axis], neutral, emit)
        values = emit("ReduceMax" if largest else "ReduceMin", [spread, emit.ints([-1])], {"keepdims": 0})
        attributes = {"axis": -1, "keepdims": 0, "select_last_index": 1}
        places = emit("ArgMax" if largest else "ArgMin", [spread], attributes)
        if back is not None:
            values, places = (emit("Transpose", [value], {"perm": back}) for value in (values, places))
        return values, op.narrow(places, 1)

    return rule


RULES = {
    "sum": reduction("ReduceSum"),
    "mean": reduction("ReduceMean"),
    "max": reduction("ReduceMax"),
    "min": reduction("ReduceMin"),
    "prod": reduction("ReduceProd"),
    "logsumexp": reduction("ReduceLogSumExp"),
    "frobenius_norm": reduction("ReduceL2"),
    "mean_all": mean_all,
    "squared_l2_norm": squared_l2_norm,
    "amax": reduction("ReduceMax"),
    "amin": reduction("ReduceMin"),
    "dist": dist,
    "all": logic("ReduceMin"),
    "any": logic("ReduceMax"),
    "p_norm": p_norm,
    "cumsum": cumsum,
    "cumprod": scan("ReduceProd", 1, "dim"),
    "logcumsumexp": scan("ReduceLogSumExp", float("-inf"), "axis"),
    "cummax": extremum(True),
    "cummin": extremum(False),
}
