"""Rules for boxes: priors, decoding, regions of interest, and non-maximum suppression."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.rules.proposals import images_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


def _part(value: ir.Value, start: int, end: int, axis: int, emit: GraphEmitter) -> ir.Value:
    return emit("Slice", [value, *(emit.ints([number]) for number in (start, end, axis))])


def yolo_box(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Decode boxes and scores of a YOLO head."""
    import numpy as np

    inner, dtype = op.known_shape("x", 1), op.dtype("x")
    if inner is None:
        raise OpNotLowered("the extents of its input are open: fix them with --fix-shape")
    anchors = np.array(op.attr("anchors"), dtype.numpy()).reshape(-1, 2)
    count, classes, height, width = len(anchors), op.attr("class_num"), inner[1], inner[2]
    x, overlap = op["x"], None
    if op.attr("iou_aware"):
        overlap = emit("Sigmoid", [_part(x, 0, count, 1, emit)])
        overlap = emit("Reshape", [overlap, emit.ints([0, count, height, width, 1])])
        x = _part(x, count, inner[0], 1, emit)
    grid = emit("Reshape", [x, emit.ints([0, count, 5 + classes, height, width])])
    grid = emit("Transpose", [grid], {"perm": [0, 1, 3, 4, 2]})
    place, extent, sure, kinds = (
        _part(grid, start, end, 4, emit) for start, end in ((0, 2), (2, 4), (4, 5), (5, 5 + classes))
    )
    sure = emit("Sigmoid", [sure])
    if overlap is not None:
        factor = op.attr("iou_aware_factor")
        first = emit("Pow", [sure, emit.scalar(1 - factor, dtype)])
        sure = emit("Mul", [first, emit("Pow", [overlap, emit.scalar(factor, dtype)])])
    kept = emit.cast(emit("GreaterOrEqual", [sure, emit.scalar(op.attr("conf_thresh"), dtype)]), dtype)
    scores = emit("Mul", [emit("Mul", [emit("Sigmoid", [kinds]), sure]), kept])
    stretch = op.attr("scale_x_y")
    cells = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).reshape(1, 1, height, width, 2)
    offset = (cells - 0.5 * (stretch - 1)).astype(dtype.numpy())
    place = emit("Mul", [emit("Sigmoid", [place]), emit.scalar(stretch, dtype)])
    place = emit("Add", [place, emit.constant(offset)])
    place = emit("Div", [place, emit.constant(np.array([width, height], dtype.numpy()))])
    ratio = op.attr("downsample_ratio")
    relative = anchors.reshape(1, count, 1, 1, 2) / np.array([ratio * width, ratio * height], dtype.numpy())
    extent = emit("Mul", [emit("Exp", [extent]), emit.constant(relative.astype(dtype.numpy()))])
    half = emit("Mul", [extent, emit.scalar(0.5, dtype)])
    size = emit.cast(emit("Gather", [op["img_size"], emit.ints([1, 0])], {"axis": 1}), dtype)  # width, height
    size = emit("Reshape", [size, emit.ints([-1, 1, 1, 1, 2])])
    corners = [emit("Mul", [emit(name, [place, half]), size]) for name in ("Sub", "Add")]
    if op.attr("clip_bbox"):
        zero, last = emit.scalar(0, dtype), emit("Sub", [size, emit.scalar(1, dtype)])
        corners = [emit("Max", [corners[0], zero]), emit("Min", [corners[1], last])]
    boxes = emit("Mul", [emit("Concat", corners, {"axis": 4}), kept])
    return (
        emit("Reshape", [boxes, emit.ints([0, count * height * width, 4])]),
        emit("Reshape", [scores, emit.ints([0, count * height * width, classes])]),
    )


def prior_box(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Create constant boxes of given sizes around every cell of a feature map."""
    import numpy as np

    shape, image = op.known_shape("input", 2), op.known_shape("image", 2)
    if shape is None or image is None:
        raise OpNotLowered("the extents of its inputs are open: fix them with --fix-shape")
    height, width = shape
    step_w, step_h = op.attr("step_w") or image[1] / width, op.attr("step_h") or image[0] / height
    ratios = [1.0]
    for ratio in op.attr("aspect_ratios"):
        for found in (ratio, 1 / ratio) if op.attr("flip") else (ratio,):
            if all(abs(found - known) > 1e-6 for known in ratios):
                ratios.append(found)
    sizes, largest = op.attr("min_sizes"), op.attr("max_sizes")
    halves = []
    for at, size in enumerate(sizes):
        square = [(math.sqrt(size * largest[at]) / 2,) * 2] if largest else []
        others = [(size * math.sqrt(ratio) / 2, size / math.sqrt(ratio) / 2) for ratio in ratios]
        if op.attr("min_max_aspect_ratios_order"):
            halves += [others[0], *square, *others[1:]]
        else:
            halves += [*others, *square]
    centers_x = (np.arange(width) + op.attr("offset")) * step_w
    centers_y = (np.arange(height) + op.attr("offset")) * step_h
    center = np.stack(np.meshgrid(centers_x, centers_y), -1)[:, :, None, :]
    half = np.array(halves)[None, None]
    boxes = np.concatenate([center - half, center + half], -1) / np.array([image[1], image[0]] * 2)
    if op.attr("clip"):
        boxes = np.clip(boxes, 0, 1)
    variances = np.broadcast_to(np.array(op.attr("variances"), np.float32), boxes.shape)
    return emit.constant(boxes.astype(np.float32)), emit.constant(variances.copy())


def box_coder(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Decode boxes from their offsets to priors."""
    import numpy as np

    if not op.attr("code_type").lower().startswith("decode"):
        raise OpNotLowered("it encodes boxes, which inference does not")
    dtype, axis = op.dtype("target_box"), op.attr("axis")
    one = emit.scalar(0 if op.attr("box_normalized") else 1, dtype)
    prior = op["prior_box"]
    low, high = _part(prior, 0, 2, 1, emit), _part(prior, 2, 4, 1, emit)
    extent = emit("Sub", [high, low])
    if not op.attr("box_normalized"):
        extent = emit("Add", [extent, one])
    center = emit("Add", [low, emit("Mul", [extent, emit.scalar(0.5, dtype)])])
    extent, center = (emit("Unsqueeze", [value, emit.ints([axis])]) for value in (extent, center))
    target = op["target_box"]
    if op.original("prior_box_var") is not None:
        target = emit("Mul", [target, emit("Unsqueeze", [op["prior_box_var"], emit.ints([axis])])])
    elif op.attr("variance"):
        target = emit("Mul", [target, emit.constant(np.array(op.attr("variance"), dtype.numpy()))])
    moved, grown = _part(target, 0, 2, 2, emit), _part(target, 2, 4, 2, emit)
    middle = emit("Add", [emit("Mul", [moved, extent]), center])
    half = emit("Mul", [emit("Mul", [emit("Exp", [grown]), extent]), emit.scalar(0.5, dtype)])
    top = emit("Add", [middle, half])
    if not op.attr("box_normalized"):
        top = emit("Sub", [top, one])
    return emit("Concat", [emit("Sub", [middle, half]), top], {"axis": 2})


def roi_align(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Pool the features of regions, each from its own image."""
    boxes = op["boxes"]
    images = images_of(op, boxes, emit)
    attributes = {
        "output_height": op.attr("pooled_height"),
        "output_width": op.attr("pooled_width"),
        "spatial_scale": float(op.attr("spatial_scale")),
        "sampling_ratio": max(op.attr("sampling_ratio"), 0),
        "coordinate_transformation_mode": "half_pixel" if op.attr("aligned") else "output_half_pixel",
    }
    return emit("RoiAlign", [op["x"], boxes, images], attributes)


def multiclass_nms3(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Select the best boxes of each class and image, without those that overlap better ones."""
    from dovetail_paddle.lowering.suppression import suppressed

    return suppressed(op, emit)


RULES = {
    "yolo_box": yolo_box, "prior_box": prior_box, "box_coder": box_coder, "roi_align": roi_align,
    "multiclass_nms3": multiclass_nms3,
}  # fmt: skip
