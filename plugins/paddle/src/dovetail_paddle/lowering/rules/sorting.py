"""Rules for ordering and counting: top-k, sorting, one-hot encoding, and unique elements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_int64, as_list, as_rank, extent

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter
    from dovetail_paddle.lowering.rules import Rule


def extremum(onnx_name: str) -> Rule:
    """Create the rule of the position of an extremum."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
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


def topk(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Return the largest or smallest elements and their positions."""
    attributes = {"axis": op.attr("axis"), "largest": int(op.attr("largest")), "sorted": int(op.attr("sorted"))}
    return emit("TopK", [op["x"], as_list(op.operand("k"), emit)], attributes, outputs=2)


def argsort(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Sort elements; return their original positions, too."""
    axis = op.attr("axis")
    attributes = {"axis": axis, "largest": int(op.attr("descending")), "sorted": 1}
    return emit("TopK", [op["x"], extent(op, "x", axis, emit)], attributes, outputs=2)


def one_hot(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Encode indices as one-hot vectors."""
    import numpy as np
    import onnx_ir as ir

    dtype = op.result_dtype() or ir.DataType.FLOAT
    values = emit.constant(np.array([0, 1], dtype.numpy()))
    depth = as_list(op.operand("num_classes"), emit)
    return emit("OneHot", [as_int64(op.operand("x"), emit), depth, values])


def kthvalue(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Return the k-th smallest element and its position."""
    import onnx_ir as ir

    axis, k, keep = op.axis(op.attr("axis"), "x"), op.attr("k"), op.attr("keepdim")
    found = emit("TopK", [op["x"], emit.ints([k])], {"axis": axis, "largest": 0}, outputs=2)
    index = emit.ints([k - 1])
    last = [emit("Gather", [value, index], {"axis": axis}) for value in found]
    if not keep:
        last = [emit("Squeeze", [value, emit.ints([axis])]) for value in last]
    last[1].type = ir.TensorType(ir.DataType.INT64)  # legacy programs declare the type of the input
    return tuple(last)


def median(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None]:
    """Return the median, or the mean of the two middle elements."""
    shape, keep, axes = op.shape("x"), op.attr("keepdim"), op.attr("axis")
    if shape is None:
        raise OpNotLowered("the rank of its input is not known")
    axes = sorted(op.axis(axis, "x") for axis in axes) or list(range(len(shape)))
    if any(shape[axis] is None for axis in axes) or op.node.outputs[1].uses():
        raise OpNotLowered("the extents of its axes are open, or its positions are read")
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
    # Any NaN must propagate; a sum detects it.
    total = emit("ReduceSum", [value, emit.ints([-1])], {"keepdims": 0})
    made = emit("Where", [emit("IsNaN", [total]), total, made])
    return (emit("Unsqueeze", [made, emit.ints(axes)]) if keep else made), None


def searchsorted(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Count the sorted elements below each value, or up to it."""
    import onnx_ir as ir

    values = emit("Unsqueeze", [op["values"], emit.ints([-1])])
    bounds = op["sorted_sequence"]
    if op.rank("sorted_sequence") > 1:
        bounds = emit("Unsqueeze", [bounds, emit.ints([-2])])
    below = emit("LessOrEqual" if op.attr("right") else "Less", [bounds, values])
    counted = emit("ReduceSum", [emit.cast(below, ir.DataType.INT64), emit.ints([-1])], {"keepdims": 0})
    return emit.narrow(counted, ir.DataType.INT32 if op.attr("out_int32") else ir.DataType.INT64)


def _counted(
    index: ir.Value, bins: ir.Value, weights: ir.Value | None, dtype: ir.DataType, emit: GraphEmitter
) -> ir.Value:
    """Count the occurrences of each bin, or sum their weights."""
    import numpy as np

    hot = emit("OneHot", [index, bins, emit.constant(np.array([0, 1], dtype.numpy()))])
    if weights is not None:
        hot = emit("Mul", [hot, emit("Unsqueeze", [weights, emit.ints([1])])])
    return emit("ReduceSum", [hot, emit.ints([0])], {"keepdims": 0})


def bincount(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Count the occurrences of each number."""
    import onnx_ir as ir

    index = as_int64(op.operand("x"), emit)
    largest = emit("ReduceMax", [index], {"keepdims": 0})
    length = emit("Add", [emit("Reshape", [largest, emit.ints([1])]), emit.ints([1])])
    bins = emit("Max", [length, as_list(op.operand("minlength"), emit)])
    weights = op.get("weights")
    return _counted(index, bins, weights, ir.DataType.INT64 if weights is None else op.dtype("weights"), emit)


def histogram(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Count the elements in equal intervals."""
    import onnx_ir as ir

    low, high, bins = op.attr("min"), op.attr("max"), op.attr("bins")
    if low == high or op.attr("density") or op.original("weight") is not None or op.dtype("input").is_integer():
        raise OpNotLowered("its limits are those of the data, or it has weights")
    value, dtype = emit("Reshape", [op["input"], emit.ints([-1])]), op.dtype("input")
    bounds = [emit.scalar(bound, dtype) for bound in (low, high)]
    inside = emit("And", [emit("GreaterOrEqual", [value, bounds[0]]), emit("LessOrEqual", [value, bounds[1]])])
    place = emit("Mul", [emit("Sub", [value, bounds[0]]), emit.scalar(bins, dtype)])
    place = emit("Div", [place, emit.scalar(high - low, dtype)])
    place = emit("Min", [emit("Floor", [place]), emit.scalar(bins - 1, dtype)])  # the upper end is in the last one
    kept = emit("Compress", [emit.cast(place, ir.DataType.INT64), inside])
    return _counted(kept, emit.ints([bins]), None, ir.DataType.INT64, emit)


def unique(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ...]:
    """Return sorted unique elements."""
    import onnx_ir as ir

    axes = op.attr("axis")
    made = emit("Unique", [op["x"]], {"axis": axes[0] if axes else None, "sorted": 1}, outputs=4)
    for value, dtype in zip(made, (op.dtype("x"), *[ir.DataType.INT64] * 3), strict=True):
        value.type = ir.TensorType(dtype)  # programs declare float32 for all of them
    wanted = ir.DataType.INT32 if op.attr("dtype") == "int32" else ir.DataType.INT64
    return (made[0], *(emit.narrow(value, wanted) for value in made[1:]))


def unique_consecutive(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Remove consecutive duplicates."""
    import numpy as np
    import onnx_ir as ir

    if op.attr("axis") and op.rank("x") > 1:
        raise OpNotLowered("it compares slices, and elements are supported")
    value = emit("Reshape", [op["x"], emit.ints([-1])])
    sides = [
        emit("Slice", [value, *(emit.ints([number]) for number in bounds)])
        for bounds in ((1, (1 << 63) - 1, 0), (0, -1, 0))
    ]
    count = emit("Shape", [value])
    true = emit("Expand", [emit.constant(np.array([True])), emit("Min", [count, emit.ints([1])])])
    first = emit("Concat", [true, emit("Not", [emit("Equal", sides)])], {"axis": 0})
    group = emit("CumSum", [emit.cast(first, ir.DataType.INT64), emit.constant(np.array(0, np.int64))])
    starts = emit("Reshape", [emit("NonZero", [first]), emit.ints([-1])])
    ends = emit(
        "Slice", [emit("Concat", [starts, count], {"axis": 0}), *(emit.ints([n]) for n in (1, (1 << 63) - 1, 0))]
    )
    wanted = ir.DataType.INT32 if op.attr("dtype") == "int32" else ir.DataType.INT64
    index = emit("Sub", [group, emit.constant(np.array(1, np.int64))])
    return (
        emit("Compress", [value, first]),
        emit.narrow(index, wanted),
        emit.narrow(emit("Sub", [ends, starts]), wanted),
    )


RULES = {
    "argmax": extremum("ArgMax"),
    "argmin": extremum("ArgMin"),
    "topk": topk,
    "argsort": argsort,
    "one_hot": one_hot,
    "kthvalue": kthvalue,
    "median": median,
    "searchsorted": searchsorted,
    "bincount": bincount,
    "histogram": histogram,
    "unique": unique,
    "unique_consecutive": unique_consecutive,
}
