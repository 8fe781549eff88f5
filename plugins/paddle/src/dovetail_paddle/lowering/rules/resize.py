"""Rules for pooling, and for interpolation on a grid or at given positions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.rules.convolution import channels_first, padding
from dovetail_paddle.lowering.shapes import as_list, int_list, joined

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter
    from dovetail_paddle.lowering.rules import Rule


def interpolation(onnx_mode: str, axes: int | None = None) -> Rule:
    """Create the rule of interpolation over a number of axes; by default over all but two."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        spatial = axes or op.rank("x") - 2
        attributes = {"mode": onnx_mode, **_coordinates(op, onnx_mode)}
        return channels_first(op, "x", emit, lambda x: _resized(op, x, spatial, attributes, emit))

    return rule


def _coordinates(op: PdOp, mode: str) -> dict[str, object]:
    """Return the coordinate transformation attributes."""
    if mode == "nearest":
        if op.attr("align_corners"):
            return {"coordinate_transformation_mode": "align_corners", "nearest_mode": "round_prefer_ceil"}
        return {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    cubic = {"cubic_coeff_a": -0.75} if mode == "cubic" else {}
    if op.attr("align_corners"):
        return {"coordinate_transformation_mode": "align_corners", **cubic}
    # Mode 1 applies to linear interpolation only.
    asymmetric = mode == "linear" and op.attr("align_mode") == 1
    return {"coordinate_transformation_mode": "asymmetric" if asymmetric else "half_pixel", **cubic}


def _resized(op: PdOp, x: ir.Value, spatial: int, attributes: dict[str, object], emit: GraphEmitter) -> ir.Value:
    import numpy as np

    sizes = _sizes(op, spatial, emit)
    if sizes is not None:
        known = op.shape("x")
        channels = -1 if op.attr("data_format").endswith("C") else 1
        first = [] if known is None else [extent for extent in (known[0], known[channels]) if extent is not None]
        shape = emit.ints(first) if len(first) == 2 else emit("Shape", [x], {"end": 2})
        return emit("Resize", [x, None, None, joined([shape, sizes], emit)], attributes)
    scales = list(op.attr("scale"))
    given = op.constant("scale_tensor")
    if given is not None:
        scales = [float(item) for item in given.reshape(-1)]
    if len(scales) == 1:
        scales *= spatial
    if len(scales) != spatial or not all(scale > 0 for scale in scales):
        raise OpNotLowered("it says neither the extents nor the scales of its result")
    return emit("Resize", [x, None, emit.constant(np.array([1, 1, *scales], np.float32))], attributes)


def _sizes(op: PdOp, spatial: int, emit: GraphEmitter) -> ir.Value | None:
    """Return the output extents; None if scales determine them."""
    if op.original("size_tensor") is not None:
        return int_list(op, "size_tensor", emit)
    if op.original("out_size") is not None:
        return as_list(op.operand("out_size"), emit)
    if op.original("scale_tensor") is not None or any(op.attr("scale")):
        return None
    wanted = [op.attr(name) for name in ("out_d", "out_h", "out_w")][-spatial:]
    return emit.ints(wanted) if all(extent > 0 for extent in wanted) else None


def grid_sample(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Interpolate at given positions."""
    padding = {"zeros": "zeros", "border": "border", "reflection": "reflection"}[op.attr("padding_mode")]
    mode = op.attr("mode")
    if emit.opset >= 20 and mode == "bilinear":
        mode = "linear"
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(op.attr("align_corners"))}
    return emit("GridSample", [op["x"], op["grid"]], attributes)


def pooling(spatial: int):
    """Create the rule of pooling over a number of axes."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        kernel = op.ints("kernel_size")
        average = op.attr("pooling_type") == "avg"
        everything = op.attr("global_pooling") or (op.attr("adaptive") and all(extent == 1 for extent in kernel))

        def lower(x: ir.Value) -> ir.Value:
            if everything:
                return emit("GlobalAveragePool" if average else "GlobalMaxPool", [x])
            if op.attr("adaptive"):
                return _adaptive(op, x, kernel, average, emit)
            attributes = {
                "kernel_shape": kernel,
                "strides": op.attr("strides"),
                "ceil_mode": int(op.attr("ceil_mode")),
                **padding(op, spatial),
            }
            if average:
                attributes["count_include_pad"] = int(not op.attr("exclusive"))
            return emit("AveragePool" if average else "MaxPool", [x], attributes)

        return channels_first(op, "x", emit, lower)

    return rule


def _spatial_extents(op: PdOp) -> list[int | None]:
    shape = op.shape("x")
    if shape is None:
        raise OpNotLowered("the rank of its input is not known")
    last = "data_format" in op.operator.argument and op.attr("data_format").endswith("C")
    return list(shape[1:-1] if last else shape[2:])


def _adaptive(op: PdOp, x: ir.Value, wanted: list[int], average: bool, emit: GraphEmitter) -> ir.Value:
    """Pool to given extents: with regular windows if they divide the input, else axis by axis."""

    have = _spatial_extents(op)
    counts = [extent if parts == -1 else parts for extent, parts in zip(have, wanted, strict=True)]
    pairs = list(zip(have, counts, strict=True))
    window = [extent // parts for extent, parts in pairs if extent is not None and parts and extent % parts == 0]
    if len(window) == len(pairs):
        return emit("AveragePool" if average else "MaxPool", [x], {"kernel_shape": window, "strides": window})
    for axis, (extent, parts) in enumerate(pairs, start=2):
        if parts is None or parts == extent:
            continue
        pieces = []
        for begin, end in _bounds(x, axis, extent, parts, emit):
            piece = x if parts == 1 else emit("Slice", [x, begin, end, emit.ints([axis])])
            if average:
                pieces.append(emit("ReduceMean", [piece, emit.ints([axis])], {"keepdims": 1}))
            else:
                pieces.append(emit("ReduceMax", [piece, emit.ints([axis])], {"keepdims": 1}))
        x = pieces[0] if len(pieces) == 1 else emit("Concat", pieces, {"axis": axis})
    return x


def _bounds(
    x: ir.Value, axis: int, extent: int | None, parts: int, emit: GraphEmitter
) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yield begin and end of each part of an axis; parts overlap if the extent is not divisible."""
    if extent is None:
        whole = emit("Shape", [x], {"start": axis, "end": axis + 1})
    for part in range(parts):
        if extent is not None:
            yield emit.ints([part * extent // parts]), emit.ints([-(-(part + 1) * extent // parts)])
            continue
        begin = emit("Div", [emit("Mul", [whole, emit.ints([part])]), emit.ints([parts])])
        end = emit("Add", [emit("Mul", [whole, emit.ints([part + 1])]), emit.ints([parts - 1])])
        yield begin, emit("Div", [end, emit.ints([parts])])


def with_index(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value | None]:
    """Pool maxima, with their positions in the plane of a channel."""
    inner, kernel = op.known_shape("x", 1), op.attr("kernel_size")
    if not op.node.outputs[1].uses():
        everything = op.attr("global_pooling") or (op.attr("adaptive") and all(extent == 1 for extent in kernel))
        if everything:
            return emit("GlobalMaxPool", [op["x"]]), None
        if op.attr("adaptive"):
            return _adaptive(op, op["x"], kernel, False, emit), None
    if op.attr("global_pooling"):
        kernel = list(op.ranked_shape("x")[2:])
    if op.attr("adaptive") or inner is None:
        raise OpNotLowered("positions of maxima need known extents and windows")
    pads = op.attr("paddings")
    attributes = {
        "kernel_shape": kernel, "strides": op.attr("strides"), "pads": [*pads, *pads],
        "ceil_mode": int(op.attr("ceil_mode")),
    }  # fmt: skip
    values, indices = emit("MaxPool", [op["x"]], attributes, outputs=2)
    plane = emit("Mod", [indices, emit.ints([math.prod(inner[1:])])])
    return values, op.narrow(plane, 1)


RULES = {
    "nearest_interp": interpolation("nearest"),
    "bilinear_interp": interpolation("linear", 2),
    "bicubic_interp": interpolation("cubic", 2),
    "linear_interp": interpolation("linear", 1),
    "trilinear_interp": interpolation("linear", 3),
    "grid_sample": grid_sample,
    "pool2d": pooling(2),
    "pool3d": pooling(3),
    "max_pool2d_with_index": with_index,
    "max_pool3d_with_index": with_index,
}
