"""Rules for frames of signals: overlapping windows along a time axis, and their sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import extent, joined, shape_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


def frame(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Cut a signal into windows: time becomes window and frame on the last axis, frame and window on the first."""
    import numpy as np

    length, hop, first = op.attr("frame_length"), op.attr("hop_length"), op.attr("axis") == 0
    axis = 0 if first else op.rank("x") - 1
    time = op.ranked_shape("x")[axis]
    inside = np.arange(length, dtype=np.int64)
    if time is not None:
        starts = np.arange(0, time - length + 1, hop, dtype=np.int64)
        index = starts[:, None] + inside if first else inside[:, None] + starts
        return emit("Gather", [op["x"], emit.constant(index)], {"axis": axis})
    end = emit("Squeeze", [emit("Sub", [extent(op, "x", axis, emit), emit.ints([length - 1])]), emit.ints([0])])
    step, start = (emit.constant(np.array(number, np.int64)) for number in (hop, 0))
    starts_of = emit("Range", [start, end, step])
    turned = emit("Unsqueeze", [starts_of, emit.ints([1 if first else 0])])
    within = emit.constant(inside[None] if first else inside[:, None])
    return emit("Gather", [op["x"], emit("Add", [turned, within])], {"axis": axis})


def overlap_add(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Add windows where they overlap: the transposed convolution by the unit matrix, with the hop as its stride."""
    import numpy as np

    first, rank, hop = op.attr("axis") == 0, op.rank("x"), op.attr("hop_length")
    value = op["x"]
    length = op.ranked_shape("x")[1 if first else rank - 2]
    if length is None:
        raise OpNotLowered("the length of its windows is open")
    if first:  # frame, window, others: others, window, frame
        value = emit("Transpose", [value], {"perm": [*range(2, rank), 1, 0]})
    others = shape_of(op, "x", emit, 2, rank) if first else shape_of(op, "x", emit, 0, rank - 2)
    frames = extent(op, "x", 0 if first else rank - 1, emit)
    value = emit("Reshape", [value, joined([emit.ints([-1, length]), frames], emit)])
    unit = np.eye(length, dtype=op.dtype("x").numpy())[:, None]
    added = emit("ConvTranspose", [value, emit.constant(unit)], {"strides": [hop]})
    added = emit("Reshape", [added, joined([others, emit.ints([-1])], emit)])
    return emit("Transpose", [added], {"perm": [rank - 2, *range(rank - 2)]}) if first else added


RULES = {"frame": frame, "overlap_add": overlap_add}
