"""Rules that change or query shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_rank, int_list, joined, shape_of
from dovetail_paddle.pd_graph import operands

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


def reshape(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Reshape; as in ONNX, 0 keeps an extent and -1 infers it."""
    return emit("Reshape", [op["x"], int_list(op, "shape", emit)])


def flatten(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Merge a range of axes."""
    rank = op.rank("x")
    start, stop = op.axis(op.attr("start_axis"), "x"), op.axis(op.attr("stop_axis"), "x")
    if rank == 0:
        return emit("Reshape", [op["x"], emit.ints([1])])
    if start == stop:
        return op["x"]
    if stop == rank - 1:
        return emit("Reshape", [op["x"], emit.ints([*[0] * start, -1])])
    after = shape_of(op, "x", emit, stop + 1, rank)
    return emit("Reshape", [op["x"], joined([emit.ints([*[0] * start, -1]), after], emit)])


def squeeze(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Remove axes of extent 1; others are kept."""
    axes, shape = op.ints("axis"), op.shape("x")
    if shape is None:
        return emit("Squeeze", [op["x"], emit.ints(axes)] if axes else [op["x"]])
    if axes:
        axes = [axis for axis in (op.axis(axis, "x") for axis in axes) if shape[axis] in (1, None)]
    else:
        axes = [axis for axis, extent in enumerate(shape) if extent == 1]
    if not axes:
        return op["x"]
    result = op.result_shape()
    if result is not None and len(result) == 1 and len(axes) == len(shape) and len(shape) > 0:
        axes = axes[1:]  # older programs have no scalars
    return emit("Squeeze", [op["x"], emit.ints(axes)]) if axes else op["x"]


def unsqueeze(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Insert axes of extent 1 one after the other."""
    axes = op.known_ints("axis")
    if axes is None:
        return emit("Unsqueeze", [op["x"], int_list(op, "axis", emit)])
    if len(axes) == 1:
        return emit("Unsqueeze", [op["x"], emit.ints(axes)])
    rank = op.rank("x")
    places = list(range(rank))  # source axis of each result axis; -1 for a new one
    for axis in axes:
        places.insert(axis + len(places) + 1 if axis < 0 else axis, -1)
    return emit("Unsqueeze", [op["x"], emit.ints([at for at, source in enumerate(places) if source < 0])])


def expand(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Broadcast axes of extent 1; -1 keeps an extent."""
    known = op.known_ints("shape")
    if known is not None:
        return emit("Expand", [op["x"], emit.ints([1 if extent < 0 else extent for extent in known])])
    given = op.operand("shape").producer()
    if given is not None and given.op_type == "combine":
        from dovetail_paddle.lowering.op import constant_of
        from dovetail_paddle.lowering.shapes import as_list

        parts = []
        for item in operands(given):
            extent = constant_of(item)
            parts.append(emit.ints([max(int(extent.reshape(-1)[0]), 1)]) if extent is not None else as_list(item, emit))
        wanted = joined(parts, emit)
    else:
        wanted = int_list(op, "shape", emit)
    return emit("Expand", [op["x"], emit("Max", [wanted, emit.ints([1])])])


def expand_as(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Broadcast to the shape of another tensor."""
    target = op.attr("target_shape")
    if op.original("y") is not None:
        return emit("Expand", [op["x"], shape_of(op, "y", emit)])
    return emit("Expand", [op["x"], emit.ints([1 if extent < 0 else extent for extent in target])])


def tile(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Repeat along each axis; missing counts are those of the first axes."""
    known = op.known_ints("repeat_times")
    if known is None:
        return emit("Tile", [op["x"], int_list(op, "repeat_times", emit)])
    value, rank = op["x"], op.rank("x")
    if len(known) > rank:
        value = emit("Unsqueeze", [value, emit.ints(range(len(known) - rank))])
    return emit("Tile", [value, emit.ints([*[1] * (rank - len(known)), *known])])


def shape(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Return the shape."""
    import onnx_ir as ir

    value = emit("Shape", [op["input"]])
    return emit.narrow(value, op.result_dtype() or ir.DataType.INT64)


def numel(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Return the number of elements."""
    return as_rank(emit("Size", [op["x"]]), 0, op.result_shape(), emit)


def is_empty(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Check whether there are no elements."""
    value = emit("Equal", [emit("Size", [op["x"]]), emit.constant(_zero())])
    return as_rank(value, 0, op.result_shape(), emit)


def _zero():
    import numpy as np

    return np.array(0, np.int64)


def meshgrid(op: PdOp, emit: GraphEmitter) -> list[ir.Value]:
    """Create the coordinates of a grid."""
    originals, items = op.originals("inputs"), op.items("inputs")
    if len(originals) != len(items):
        raise OpNotLowered("its coordinates are no list of tensors")
    lists = [emit("Reshape", [item, emit.ints([-1])]) for item in items]
    extents = joined([emit("Shape", [item]) for item in lists], emit)
    count = len(items)
    found = []
    for axis, item in enumerate(lists):
        placed = emit("Reshape", [item, emit.ints([-1 if at == axis else 1 for at in range(count)])])
        found.append(emit("Expand", [placed, extents]))
    return found


def broadcast_tensors(op: PdOp, emit: GraphEmitter) -> list[ir.Value]:
    """Broadcast several tensors to their common shape."""
    items = op.items("input")
    shapes = [value.shape for value in op.originals("input")]
    found = []
    for at, item in enumerate(items):
        others = [other for index, other in enumerate(items) if index != at and shapes[index] != shapes[at]]
        for other in others:
            item = emit("Expand", [item, emit("Shape", [other])])
        found.append(item)
    return found


RULES = {
    "reshape": reshape, "flatten": flatten, "squeeze": squeeze, "unsqueeze": unsqueeze, "expand": expand,
    "expand_as": expand_as, "tile": tile, "shape": shape, "shape64": shape, "numel": numel, "is_empty": is_empty,
    "meshgrid": meshgrid, "broadcast_tensors": broadcast_tensors,
}  # fmt: skip
