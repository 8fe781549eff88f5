"""Non-maximum suppression over several classes and images, with results in Paddle's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import extent

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


def suppressed(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the selected boxes with class and score, their indices, and their count per image."""
    import numpy as np
    import onnx_ir as ir

    if op.original("rois_num") is not None or op.rank("bboxes") != 3 or op.rank("scores") != 3:
        raise OpNotLowered("its boxes are of all images in one list, and one list for each image is supported")
    if op.attr("nms_eta") < 1:
        raise OpNotLowered("its threshold changes from box to box (nms_eta)")
    dtype, boxes, scores = op.dtype("bboxes"), op["bboxes"], op["scores"]
    first = op.attr("background_label") == 0
    if op.attr("background_label") > 0:
        raise OpNotLowered("its background is not the first class")
    if first:
        scores = emit("Slice", [scores, emit.ints([1]), emit.ints([(1 << 63) - 1]), emit.ints([1])])
    best = _candidates(op, scores, emit)
    compared = boxes
    if not op.attr("normalized"):  # corner pixels belong to the box
        compared = emit("Add", [boxes, emit.constant(np.array([0, 0, 1, 1], dtype.numpy()))])
    limit = op.attr("nms_top_k")
    most = emit.constant(np.array(limit if limit > 0 else (1 << 31) - 1, np.int64))
    thresholds = [emit.constant(np.array(op.attr(name), np.float32)) for name in ("nms_threshold", "score_threshold")]
    found = emit("NonMaxSuppression", [compared, best, most, *thresholds])  # image, class, box
    values = emit("GatherND", [scores, found])
    found, values = _kept(op, found, values, emit)
    found, values = _ordered(op, found, values, emit)
    image, label, at = emit("Split", [found], {"axis": 1, "num_outputs": 3}, outputs=3)
    corners = emit("GatherND", [boxes, emit("Concat", [image, at], {"axis": 1})])
    if first:
        label = emit("Add", [label, emit.constant(np.array(1, np.int64))])
    columns = [emit.cast(label, dtype), emit("Unsqueeze", [values, emit.ints([1])]), corners]
    index = emit("Add", [emit("Mul", [image, extent(op, "bboxes", 1, emit)]), at])
    counted = emit.cast(emit("Equal", [image, _images(op, emit)]), ir.DataType.INT32)
    number = emit("ReduceSum", [counted, emit.ints([0])], {"keepdims": 0})
    wanted = op.result_dtype(1) or ir.DataType.INT32
    return emit("Concat", columns, {"axis": 1}), emit.narrow(index, wanted), number


def _candidates(op: PdOp, scores: ir.Value, emit: GraphEmitter) -> ir.Value:
    """Return the scores; those not among the best of their class are lowered below the threshold."""
    limit, shape, dtype = op.attr("nms_top_k"), op.shape("scores"), op.dtype("scores")
    if limit <= 0 or (shape is not None and shape[2] is not None and shape[2] <= limit):
        return scores
    count = emit("Min", [extent(op, "scores", 2, emit), emit.ints([limit])])
    top, _ = emit("TopK", [scores, count], {"axis": 2}, outputs=2)
    least = emit("ReduceMin", [top, emit.ints([2])], {"keepdims": 1})
    below = emit.scalar(op.attr("score_threshold") - 1, dtype)
    return emit("Where", [emit("GreaterOrEqual", [scores, least]), scores, below])


def _images(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Return all image indices as a list."""
    import numpy as np

    shape = op.shape("bboxes")
    if shape is not None and shape[0] is not None:
        return emit.constant(np.arange(shape[0], dtype=np.int64)[None])
    count = emit("Reshape", [extent(op, "bboxes", 0, emit), emit.ints([])])
    numbers = emit("Range", [emit.constant(np.array(0, np.int64)), count, emit.constant(np.array(1, np.int64))])
    return emit("Unsqueeze", [numbers, emit.ints([0])])


def _kept(op: PdOp, found: ir.Value, values: ir.Value, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Keep the best boxes of each image, by descending score."""
    import numpy as np
    import onnx_ir as ir

    everything = emit("Shape", [values])
    values, order = emit("TopK", [values, everything], {"axis": 0}, outputs=2)
    found = emit("Gather", [found, order])
    if op.attr("keep_top_k") <= 0:
        return found, values
    image = emit("Slice", [found, emit.ints([0]), emit.ints([1]), emit.ints([1])])
    own = emit.cast(emit("Equal", [image, _images(op, emit)]), ir.DataType.INT32)
    before = emit("CumSum", [own, emit.constant(np.array(0, np.int64))], {"exclusive": 1})
    place = emit("ReduceSum", [emit("Mul", [before, own]), emit.ints([1])], {"keepdims": 0})
    kept = emit("Less", [place, emit.constant(np.array(op.attr("keep_top_k"), np.int32))])
    return emit("Compress", [found, kept], {"axis": 0}), emit("Compress", [values, kept], {"axis": 0})


def _ordered(op: PdOp, found: ir.Value, values: ir.Value, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Sort by image and class; equal keys keep their order within a class."""
    import numpy as np

    shape = op.shape("scores")
    classes = shape[1] if shape is not None and shape[1] is not None else 1 << 20
    weights = emit.constant(np.array([[-classes], [-1], [0]], np.float32))
    import onnx_ir as ir

    keys = emit("Reshape", [emit("MatMul", [emit.cast(found, ir.DataType.FLOAT), weights]), emit.ints([-1])])
    _, order = emit("TopK", [keys, emit("Shape", [keys])], {"axis": 0}, outputs=2)
    return emit("Gather", [found, order]), emit("Gather", [values, order])
