"""Interpolation to other extents, on a grid or anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import NotLowered, PdOp
from dovetail_paddle.lowering.rules.convolution import channels_first
from dovetail_paddle.lowering.shapes import as_list, int_list, joined

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter
    from dovetail_paddle.lowering.rules import Rule


def interpolation(onnx_mode: str, axes: int | None = None) -> Rule:
    """The rule of interpolation over a number of axes; over all but two if it is not given."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        spatial = axes or op.rank("x") - 2
        attributes = {"mode": onnx_mode, **_coordinates(op, onnx_mode)}
        return channels_first(op, "x", emit, lambda x: _resized(op, x, spatial, attributes, emit))

    return rule


def _coordinates(op: PdOp, mode: str) -> dict[str, object]:
    """How positions of the result are those of the input."""
    if mode == "nearest":
        if op.attr("align_corners"):
            return {"coordinate_transformation_mode": "align_corners", "nearest_mode": "round_prefer_ceil"}
        return {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    cubic = {"cubic_coeff_a": -0.75} if mode == "cubic" else {}
    if op.attr("align_corners"):
        return {"coordinate_transformation_mode": "align_corners", **cubic}
    # Mode 1 is for linear interpolation alone.
    asymmetric = mode == "linear" and op.attr("align_mode") == 1
    return {"coordinate_transformation_mode": "asymmetric" if asymmetric else "half_pixel", **cubic}


def _resized(op: PdOp, x: ir.Value, spatial: int, attributes: dict[str, object], emit: Emitter) -> ir.Value:
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
        raise NotLowered("it says neither the extents nor the scales of its result")
    return emit("Resize", [x, None, emit.constant(np.array([1, 1, *scales], np.float32))], attributes)


def _sizes(op: PdOp, spatial: int, emit: Emitter) -> ir.Value | None:
    """The wanted extents; None if scales say them."""
    if op.original("size_tensor") is not None:
        return int_list(op, "size_tensor", emit)
    if op.original("out_size") is not None:
        return as_list(op.operand("out_size"), emit)
    if op.original("scale_tensor") is not None or any(op.attr("scale")):
        return None
    wanted = [op.attr(name) for name in ("out_d", "out_h", "out_w")][-spatial:]
    return emit.ints(wanted) if all(extent > 0 for extent in wanted) else None


def grid_sample(op: PdOp, emit: Emitter) -> ir.Value:
    """Interpolation at given positions."""
    padding = {"zeros": "zeros", "border": "border", "reflection": "reflection"}[op.attr("padding_mode")]
    mode = op.attr("mode")
    if emit.opset >= 20 and mode == "bilinear":
        mode = "linear"
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(op.attr("align_corners"))}
    return emit("GridSample", [op["x"], op["grid"]], attributes)


RULES = {
    "nearest_interp": interpolation("nearest"), "bilinear_interp": interpolation("linear", 2),
    "bicubic_interp": interpolation("cubic", 2), "linear_interp": interpolation("linear", 1),
    "trilinear_interp": interpolation("linear", 3), "grid_sample": grid_sample,
}  # fmt: skip
