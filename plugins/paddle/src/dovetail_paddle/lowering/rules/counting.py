"""Positions in sorted lists, counts, and elements without their repetitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import NotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_int64, as_list

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter


def searchsorted(op: PdOp, emit: Emitter) -> ir.Value:
    """The number of sorted elements below each value, or not above it."""
    import onnx_ir as ir

    values = emit("Unsqueeze", [op["values"], emit.ints([-1])])
    bounds = op["sorted_sequence"]
    if op.rank("sorted_sequence") > 1:
        bounds = emit("Unsqueeze", [bounds, emit.ints([-2])])
    below = emit("LessOrEqual" if op.attr("right") else "Less", [bounds, values])
    counted = emit("ReduceSum", [emit.cast(below, ir.DataType.INT64), emit.ints([-1])], {"keepdims": 0})
    return emit.narrow(counted, ir.DataType.INT32 if op.attr("out_int32") else ir.DataType.INT64)


def _counted(index: ir.Value, bins: ir.Value, weights: ir.Value | None, dtype: ir.DataType, emit: Emitter) -> ir.Value:
    """The number of times that each bin is named, or the sum of the weights."""
    import numpy as np

    hot = emit("OneHot", [index, bins, emit.constant(np.array([0, 1], dtype.numpy()))])
    if weights is not None:
        hot = emit("Mul", [hot, emit("Unsqueeze", [weights, emit.ints([1])])])
    return emit("ReduceSum", [hot, emit.ints([0])], {"keepdims": 0})


def bincount(op: PdOp, emit: Emitter) -> ir.Value:
    """How often each number occurs."""
    import onnx_ir as ir

    index = as_int64(op.operand("x"), emit)
    largest = emit("ReduceMax", [index], {"keepdims": 0})
    length = emit("Add", [emit("Reshape", [largest, emit.ints([1])]), emit.ints([1])])
    bins = emit("Max", [length, as_list(op.operand("minlength"), emit)])
    weights = op.get("weights")
    return _counted(index, bins, weights, ir.DataType.INT64 if weights is None else op.dtype("weights"), emit)


def histogram(op: PdOp, emit: Emitter) -> ir.Value:
    """How many elements lie in each of several intervals of one length."""
    import onnx_ir as ir

    low, high, bins = op.attr("min"), op.attr("max"), op.attr("bins")
    if low == high or op.attr("density") or op.original("weight") is not None or op.dtype("input").is_integer():
        raise NotLowered("its limits are those of the data, or it has weights")
    value, dtype = emit("Reshape", [op["input"], emit.ints([-1])]), op.dtype("input")
    bounds = [emit.scalar(bound, dtype) for bound in (low, high)]
    inside = emit("And", [emit("GreaterOrEqual", [value, bounds[0]]), emit("LessOrEqual", [value, bounds[1]])])
    place = emit("Mul", [emit("Sub", [value, bounds[0]]), emit.scalar(bins, dtype)])
    place = emit("Div", [place, emit.scalar(high - low, dtype)])
    place = emit("Min", [emit("Floor", [place]), emit.scalar(bins - 1, dtype)])  # the end belongs to the last one
    kept = emit("Compress", [emit.cast(place, ir.DataType.INT64), inside])
    return _counted(kept, emit.ints([bins]), None, ir.DataType.INT64, emit)


def unique(op: PdOp, emit: Emitter) -> tuple[ir.Value, ...]:
    """Elements without repetitions, in order."""
    import onnx_ir as ir

    axes = op.attr("axis")
    made = emit("Unique", [op["x"]], {"axis": axes[0] if axes else None, "sorted": 1}, outputs=4)
    for value, dtype in zip(made, (op.dtype("x"), *[ir.DataType.INT64] * 3), strict=True):
        value.type = ir.TensorType(dtype)  # programs declare float32 for all of them
    wanted = ir.DataType.INT32 if op.attr("dtype") == "int32" else ir.DataType.INT64
    return (made[0], *(emit.narrow(value, wanted) for value in made[1:]))


def unique_consecutive(op: PdOp, emit: Emitter) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Elements without repetitions of the one before."""
    import numpy as np
    import onnx_ir as ir

    if op.attr("axis") and op.rank("x") > 1:
        raise NotLowered("it compares slices, and elements are supported")
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
    "searchsorted": searchsorted, "bincount": bincount, "histogram": histogram, "unique": unique,
    "unique_consecutive": unique_consecutive,
}  # fmt: skip
