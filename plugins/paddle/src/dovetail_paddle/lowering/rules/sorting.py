"""Order: the largest, sorting, and one-hot codes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.lowering.op import NotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_int64, as_list, as_rank, extent

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter
    from dovetail_paddle.lowering.rules import Rule


def extremum(onnx_name: str) -> Rule:
    """The rule of the position of an extremum."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        import onnx_ir as ir

        value, axis, keep = op["x"], int(op.number("axis")), op.attr("keepdims")
        flat = op.attr("flatten")
        if flat:
            value, axis = emit("Reshape", [value, emit.ints([-1])]), 0
        made = emit(onnx_name, [value], {"axis": axis, "keepdims": int(keep and not flat)})
        if flat or (op.shape("x") is not None and op.rank("x") == 1 and not keep):
            result = op.result_shape()
            made = (
                emit("Reshape", [made, emit.ints([1] * len(result))])
                if keep and result
                else as_rank(made, 0, result, emit)
            )
        return emit.narrow(made, onnx_type(op.attr("dtype")) or ir.DataType.INT64)

    return rule


def topk(op: PdOp, emit: Emitter) -> tuple[ir.Value, ir.Value]:
    """The largest or the smallest, and where they are."""
    attributes = {"axis": op.attr("axis"), "largest": int(op.attr("largest")), "sorted": int(op.attr("sorted"))}
    return emit("TopK", [op["x"], as_list(op.operand("k"), emit)], attributes, outputs=2)


def argsort(op: PdOp, emit: Emitter) -> tuple[ir.Value, ir.Value]:
    """All elements in order, and where they were."""
    axis = op.attr("axis")
    attributes = {"axis": axis, "largest": int(op.attr("descending")), "sorted": 1}
    return emit("TopK", [op["x"], extent(op, "x", axis, emit)], attributes, outputs=2)


def one_hot(op: PdOp, emit: Emitter) -> ir.Value:
    """A one in place of each index."""
    import numpy as np
    import onnx_ir as ir

    dtype = op.result_dtype() or ir.DataType.FLOAT
    values = emit.constant(np.array([0, 1], dtype.numpy()))
    depth = as_list(op.operand("num_classes"), emit)
    return emit("OneHot", [as_int64(op.operand("x"), emit), depth, values])


def kthvalue(op: PdOp, emit: Emitter) -> tuple[ir.Value, ir.Value]:
    """The smallest but so many, and where it is."""
    import onnx_ir as ir

    axis, k, keep = op.axis(op.attr("axis"), "x"), op.attr("k"), op.attr("keepdim")
    found = emit("TopK", [op["x"], emit.ints([k])], {"axis": axis, "largest": 0}, outputs=2)
    index = emit.ints([k - 1])
    last = [emit("Gather", [value, index], {"axis": axis}) for value in found]
    if not keep:
        last = [emit("Squeeze", [value, emit.ints([axis])]) for value in last]
    last[1].type = ir.TensorType(ir.DataType.INT64)  # legacy programs declare the type of the input
    return tuple(last)


def median(op: PdOp, emit: Emitter) -> tuple[ir.Value, None]:
    """The element in the middle, or the mean of two."""
    shape, keep, axes = op.shape("x"), op.attr("keepdim"), op.attr("axis")
    if shape is None:
        raise NotLowered("the rank of its input is not known")
    axes = sorted(op.axis(axis, "x") for axis in axes) or list(range(len(shape)))
    if any(shape[axis] is None for axis in axes) or op.node.outputs[1].uses():
        raise NotLowered("the extents of its axes are open, or its positions are read")
    others = [axis for axis in range(len(shape)) if axis not in axes]
    order = [*others, *axes]
    value = op["x"] if order == sorted(order) else emit("Transpose", [op["x"]], {"perm": order})
    count = math.prod(shape[axis] for axis in axes)
    value = emit("Reshape", [value, emit.ints([*[0] * len(others), count])])
    half = count // 2 + 1
    least, _ = emit("TopK", [value, emit.ints([half])], {"axis": -1, "largest": 0}, outputs=2)
    middle = [half - 2, half - 1] if count % 2 == 0 and op.attr("mode") == "avg" else [(count - 1) // 2]
    made = emit("Gather", [least, emit.ints(middle)], {"axis": -1})
    made = emit("ReduceMean", [made, emit.ints([-1])], {"keepdims": 0})
    # A NaN anywhere gives NaN: a sum is NaN, too, and nothing else of it is kept.
    total = emit("ReduceSum", [value, emit.ints([-1])], {"keepdims": 0})
    made = emit("Where", [emit("IsNaN", [total]), total, made])
    return (emit("Unsqueeze", [made, emit.ints(axes)]) if keep else made), None


RULES = {
    "argmax": extremum("ArgMax"), "argmin": extremum("ArgMin"), "topk": topk, "argsort": argsort, "one_hot": one_hot,
    "kthvalue": kthvalue, "median": median,
}  # fmt: skip
