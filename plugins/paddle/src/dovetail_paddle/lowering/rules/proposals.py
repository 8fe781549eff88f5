"""Rules for regions of two-stage detectors: matrix suppression, pyramid levels, and pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_int64, extent

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


_END = (1 << 63) - 1


def _number(value: int, emit: GraphEmitter) -> ir.Value:
    import numpy as np

    return emit.constant(np.array(value, np.int64))


def _column(value: ir.Value, at: int, emit: GraphEmitter) -> ir.Value:
    return emit("Gather", [value, _number(at, emit)], {"axis": -1})


def images_of(op: PdOp, boxes: ir.Value, emit: GraphEmitter) -> ir.Value:
    """Return the image index of each region."""
    import numpy as np
    import onnx_ir as ir

    count = emit("Shape", [boxes], {"end": 1})
    if op.original("boxes_num") is None or (op.shape("x") or (None,))[0] == 1:
        return emit("ConstantOfShape", [count], {"value": np.zeros(1, np.int64)})
    ends = emit("CumSum", [as_int64(op.operand("boxes_num"), emit), _number(0, emit)])
    numbers = emit("Range", [_number(0, emit), emit("Reshape", [count, emit.ints([])]), _number(1, emit)])
    rows = emit("Unsqueeze", [numbers, emit.ints([1])])
    after = emit.cast(emit("GreaterOrEqual", [rows, ends]), ir.DataType.INT64)
    return emit("ReduceSum", [after, emit.ints([1])], {"keepdims": 0})


def roi_pool(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None]:
    """Pool the maximum of each part of a region."""
    boxes, dtype = op["boxes"], op.dtype("boxes")
    images = emit("Unsqueeze", [emit.cast(images_of(op, boxes, emit), dtype), emit.ints([1])])
    attributes = {
        "pooled_shape": [op.attr("pooled_height"), op.attr("pooled_width")],
        "spatial_scale": op.attr("spatial_scale"),
    }
    return emit("MaxRoiPool", [op["x"], emit("Concat", [images, boxes], {"axis": 1})], attributes), None


def psroi_pool(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Pool the mean of each part of a region from its own channels; row and column masks select the pixels."""
    import numpy as np

    inner, dtype = op.known_shape("x", 1), op.dtype("x")
    rows, columns = op.attr("pooled_height"), op.attr("pooled_width")
    if inner is None:
        raise OpNotLowered("the extents of its input are open: fix them with --fix-shape")
    channels, height, width = inner[0] // (rows * columns), inner[1], inner[2]
    images = images_of(op, op["boxes"], emit)
    value = emit("Reshape", [op["x"], emit.ints([-1, channels, rows, columns, height, width])])
    value = emit("Gather", [value, images])
    scale, one = emit.scalar(op.attr("spatial_scale"), dtype), emit.scalar(1, dtype)
    boxes = emit("Round", [op["boxes"]])
    masks, sizes = [], []
    for first, parts, limit in ((1, rows, height), (0, columns, width)):
        begin = emit("Mul", [_column(boxes, first, emit), scale])
        end = emit("Mul", [emit("Add", [_column(boxes, first + 2, emit), one]), scale])
        length = emit("Max", [emit("Sub", [end, begin]), emit.scalar(0.1, dtype)])
        step = emit("Unsqueeze", [emit("Div", [length, emit.scalar(parts, dtype)]), emit.ints([1])])
        begin = emit("Unsqueeze", [begin, emit.ints([1])])
        part = np.arange(parts, dtype=dtype.numpy())
        ends = []
        for name, at in (("Floor", part), ("Ceil", part + 1)):
            edge = emit(name, [emit("Add", [emit("Mul", [step, emit.constant(at)]), begin])])
            ends.append(emit("Clip", [edge, emit.scalar(0, dtype), emit.scalar(limit, dtype)]))
        sizes.append(emit("Sub", [ends[1], ends[0]]))
        pixel = emit.constant(np.arange(limit, dtype=dtype.numpy()))
        low, high = (emit("Unsqueeze", [edge, emit.ints([2])]) for edge in ends)
        inside = emit("And", [emit("GreaterOrEqual", [pixel, low]), emit("Less", [pixel, high])])
        masks.append(emit.cast(inside, dtype))
    total = emit("Einsum", [value, *masks], {"equation": "rcpqhw,rph,rqw->rcpq"})
    area = emit("Mul", [emit("Unsqueeze", [sizes[0], emit.ints([2])]), emit("Unsqueeze", [sizes[1], emit.ints([1])])])
    area = emit("Unsqueeze", [area, emit.ints([1])])
    empty = emit("LessOrEqual", [area, emit.scalar(0, dtype)])
    return emit("Where", [empty, emit.scalar(0, dtype), emit("Div", [total, emit("Max", [area, one])])])


def nms(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Select boxes that overlap no earlier one; they are sorted by descending score."""
    import numpy as np
    import onnx_ir as ir

    count = emit("Shape", [op["x"]], {"end": 1})
    number = emit("Reshape", [count, emit.ints([])])
    places = emit("Range", [_number(0, emit), number, _number(1, emit)])
    scores = emit("Neg", [emit.cast(places, ir.DataType.FLOAT)])
    scores, boxes = (emit("Unsqueeze", [value, emit.ints(axes)]) for value, axes in ((scores, [0, 1]), (op["x"], [0])))
    threshold = emit.constant(np.array(op.attr("threshold"), np.float32))
    found = emit("NonMaxSuppression", [boxes, scores, number, threshold])
    return _column(found, 2, emit)


def matrix_nms(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Decay the scores of boxes by their overlap with better ones of the class, and select the best of each image."""
    import numpy as np
    import onnx_ir as ir

    shape, dtype = op.shape("scores"), op.dtype("scores")
    boxes, scores = op["bboxes"], op["scores"]
    if shape is None or shape[1] is None or shape[2] is None:
        raise OpNotLowered("the numbers of its classes and boxes are open: fix them with --fix-shape")
    classes = [label for label in range(shape[1]) if label != op.attr("background_label")]
    if len(classes) < shape[1]:
        scores = emit("Gather", [scores, emit.ints(classes)], {"axis": 1})
    count = min(op.attr("nms_top_k"), shape[2]) if op.attr("nms_top_k") > 0 else shape[2]
    top, places = emit("TopK", [scores, emit.ints([count])], {"axis": 2}, outputs=2)
    valid = emit("Greater", [top, emit.scalar(op.attr("score_threshold"), dtype)])
    chosen = _chosen(boxes, places, len(classes) * count, emit)
    chosen = emit("Reshape", [chosen, emit.ints([-1, len(classes), count, 4])])
    overlap = _overlaps(chosen, bool(op.attr("normalized")), dtype, emit)
    # Overlap of each box (last axis) with each better one (second-last axis).
    better = emit.constant(np.triu(np.ones((count, count), dtype.numpy()), 1))
    overlap = emit("Mul", [overlap, better])
    most = emit("Unsqueeze", [emit("ReduceMax", [overlap, emit.ints([2])], {"keepdims": 0}), emit.ints([3])])
    if op.attr("use_gaussian"):
        square = emit("Sub", [emit("Mul", [most, most]), emit("Mul", [overlap, overlap])])
        decay = emit("Exp", [emit("Mul", [square, emit.scalar(op.attr("gaussian_sigma"), dtype)])])
    else:
        one = emit.scalar(1, dtype)
        decay = emit("Div", [emit("Sub", [one, overlap]), emit("Sub", [one, most])])
    above = emit("Cast", [better], {"to": int(ir.DataType.BOOL)})
    decay = emit("Where", [above, decay, emit.scalar(1, dtype)])
    lowered = emit("Mul", [top, emit("ReduceMin", [decay, emit.ints([2])], {"keepdims": 0})])
    valid = emit("And", [valid, emit("Greater", [lowered, emit.scalar(op.attr("post_threshold"), dtype)])])
    whole = len(classes) * count
    kept = min(op.attr("keep_top_k"), whole) if op.attr("keep_top_k") > 0 else whole
    masked = emit("Where", [valid, lowered, emit.scalar(-1, dtype)])
    final, order = emit(
        "TopK", [emit("Reshape", [masked, emit.ints([-1, whole])]), emit.ints([kept])], {"axis": 1}, outputs=2
    )
    good = emit("GreaterOrEqual", [final, emit.scalar(0, dtype)])
    labels = emit.constant(np.repeat(np.array(classes), count).astype(dtype.numpy()))
    label = emit("Unsqueeze", [emit("Gather", [labels, order]), emit.ints([2])])
    corners = _chosen(emit("Reshape", [chosen, emit.ints([-1, whole, 4])]), order, kept, emit)
    rows = emit("Concat", [label, emit("Unsqueeze", [final, emit.ints([2])]), corners], {"axis": 2})
    flat = emit("Reshape", [good, emit.ints([-1])])
    out = emit("Compress", [emit("Reshape", [rows, emit.ints([-1, 6])]), flat], {"axis": 0})
    number = emit("ReduceSum", [emit.cast(good, ir.DataType.INT32), emit.ints([1])], {"keepdims": 0})
    return out, _original(op, places, order, flat, shape[2], emit), number


def _chosen(boxes: ir.Value, places: ir.Value, count: int, emit: GraphEmitter) -> ir.Value:
    """Gather boxes of each image by index."""
    index = emit("Reshape", [places, emit.ints([-1, count, 1])])
    return emit("GatherND", [boxes, index], {"batch_dims": 1})


def _original(op: PdOp, places: ir.Value, order: ir.Value, kept: ir.Value, count: int, emit: GraphEmitter) -> ir.Value:
    """Return the indices of boxes in the list of all images."""
    flat = emit(
        "Reshape", [places, emit("Concat", [emit("Shape", [places], {"end": 1}), emit.ints([-1])], {"axis": 0})]
    )
    index = emit("GatherElements", [flat, order], {"axis": 1})
    images = emit("Reshape", [extent(op, "bboxes", 0, emit), emit.ints([])])
    first = emit("Mul", [emit("Range", [_number(0, emit), images, _number(1, emit)]), _number(count, emit)])
    index = emit("Add", [index, emit("Unsqueeze", [first, emit.ints([1])])])
    index = emit("Compress", [emit("Reshape", [index, emit.ints([-1, 1])]), kept], {"axis": 0})
    return op.narrow(index, 1)


def _overlaps(boxes: ir.Value, normalized: bool, dtype: ir.DataType, emit: GraphEmitter) -> ir.Value:
    """Compute the intersection over union of all pairs; unless normalized, corner pixels belong to the box."""
    low = emit("Slice", [boxes, *(emit.ints([number]) for number in (0, 2, -1))])
    high = emit("Slice", [boxes, *(emit.ints([number]) for number in (2, 4, -1))])
    if not normalized:
        high = emit("Add", [high, emit.scalar(1, dtype)])
    first, second = (([emit("Unsqueeze", [value, emit.ints([axis])]) for value in (low, high)]) for axis in (3, 2))
    zero = emit.scalar(0, dtype)
    inside = emit("Sub", [emit("Min", [first[1], second[1]]), emit("Max", [first[0], second[0]])])
    inside = emit("ReduceProd", [emit("Max", [inside, zero]), emit.ints([-1])], {"keepdims": 0})
    areas = [
        emit("ReduceProd", [emit("Sub", [side[1], side[0]]), emit.ints([-1])], {"keepdims": 0})
        for side in (first, second)
    ]
    union = emit("Sub", [emit("Add", areas), inside])
    return emit("Div", [inside, emit("Max", [union, emit.scalar(1e-30, dtype)])])


def distribute_fpn_proposals(op: PdOp, emit: GraphEmitter) -> tuple[list, list, ir.Value]:
    """Assign regions to pyramid levels by size; return them, their counts, and the order that restores the input."""
    import math

    import onnx_ir as ir

    boxes, dtype = op["fpn_rois"], op.dtype("fpn_rois")
    least, most = op.attr("min_level"), op.attr("max_level")
    low, high = (emit("Slice", [boxes, *(emit.ints([n]) for n in bounds)]) for bounds in ((0, 2, 1), (2, 4, 1)))
    size = emit("Sub", [high, low])
    valid = emit("GreaterOrEqual", [emit("ReduceMin", [size, emit.ints([1])], {"keepdims": 0}), emit.scalar(0, dtype)])
    if op.attr("pixel_offset"):
        size = emit("Add", [size, emit.scalar(1, dtype)])
    area = emit("ReduceProd", [size, emit.ints([1])], {"keepdims": 0})
    area = emit("Where", [valid, area, emit.scalar(0, dtype)])
    share = emit("Div", [emit("Sqrt", [area]), emit.scalar(op.attr("refer_scale"), dtype)])
    level = emit("Log", [emit("Add", [share, emit.scalar(1e-6, dtype)])])
    level = emit("Floor", [emit("Mul", [level, emit.scalar(1 / math.log(2), dtype)])])
    level = emit("Add", [level, emit.scalar(op.attr("refer_level"), dtype)])
    level = emit("Clip", [level, emit.scalar(least, dtype), emit.scalar(most, dtype)])
    images = None
    if op.original("rois_num") is not None:
        ends = emit("CumSum", [as_int64(op.operand("rois_num"), emit), _number(0, emit)])
        starts = emit("Sub", [ends, as_int64(op.operand("rois_num"), emit)])
        places = emit(
            "Range",
            [_number(0, emit), emit("Reshape", [extent(op, "fpn_rois", 0, emit), emit.ints([])]), _number(1, emit)],
        )
        row = emit("Unsqueeze", [places, emit.ints([0])])
        inside = [emit("Unsqueeze", [bound, emit.ints([1])]) for bound in (starts, ends)]
        images = emit("And", [emit("GreaterOrEqual", [row, inside[0]]), emit("Less", [row, inside[1]])])
    regions, numbers, order = [], [], []
    for wanted in range(least, most + 1):
        here = emit("Equal", [level, emit.scalar(wanted, dtype)])
        regions.append(emit("Compress", [boxes, here], {"axis": 0}))
        order.append(emit("Reshape", [emit("NonZero", [here]), emit.ints([-1])]))
        both = here if images is None else emit("And", [images, here])
        counted = emit(
            "ReduceSum", [emit.cast(both, ir.DataType.INT32), emit.ints([-1])], {"keepdims": int(images is None)}
        )
        numbers.append(counted)
    order = emit("Concat", order, {"axis": 0})
    _, back = emit("TopK", [order, emit("Shape", [order])], {"axis": 0, "largest": 0}, outputs=2)
    back = emit("Unsqueeze", [back, emit.ints([1])])
    return regions, numbers, op.narrow(back, 2)


RULES = {
    "roi_pool": roi_pool, "psroi_pool": psroi_pool, "nms": nms, "matrix_nms": matrix_nms,
    "distribute_fpn_proposals": distribute_fpn_proposals,
}  # fmt: skip
