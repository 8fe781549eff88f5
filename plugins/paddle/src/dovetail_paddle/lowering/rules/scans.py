"""Products, extrema and logarithms of sums so far: each is a reduction over the elements up to its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import NotLowered, PdOp

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter
    from dovetail_paddle.lowering.rules import Rule


_MOST = 1 << 12  # extent of the axis, since its square is computed


def _prefixes(
    op: PdOp, value: ir.Value, axis: int, extent: int | None, neutral: ir.Value, emit: Emitter
) -> tuple[ir.Value, list[int] | None]:
    """For each element of an axis all of them up to it as a new last axis, and the permutation that moved the axis."""
    import numpy as np

    if extent is None or extent > _MOST:
        raise NotLowered(f"the extent of its axis is open, or above {_MOST}")
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
    """The rule of a reduction over the elements so far."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        value, axis, dtype = op["x"], op.axis(op.attr(axis_name), "x"), op.dtype("x")
        shape = op.ranked_shape("x")
        extent, flat = shape[axis], "flatten" in op.operator.argument and op.attr("flatten")
        if flat and len(shape) > 1:
            raise NotLowered("it goes over all elements of a tensor with several axes")
        spread, back = _prefixes(op, value, axis, extent, emit.scalar(neutral, dtype), emit)
        made = emit(onnx_name, [spread, emit.ints([-1])], {"keepdims": 0})
        return made if back is None else emit("Transpose", [made], {"perm": back})

    return rule


def extremum(largest: bool) -> Rule:
    """The rule of the extremum so far and its last position."""

    def rule(op: PdOp, emit: Emitter) -> tuple[ir.Value, ir.Value]:
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
    "cumprod": scan("ReduceProd", 1, "dim"), "logcumsumexp": scan("ReduceLogSumExp", float("-inf"), "axis"),
    "cummax": extremum(True), "cummin": extremum(False),
}  # fmt: skip
