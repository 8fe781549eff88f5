"""Convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail_paddle.lowering.op import NotLowered, PdOp

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter

__all__ = ["RULES", "channels_first", "padding"]


def padding(op: PdOp, spatial: int) -> dict[str, Any]:
    """The attributes that say how an operator pads: `pads`, or `auto_pad`."""
    algorithm, pads = op.attr("padding_algorithm"), list(op.attr("paddings"))
    if algorithm == "SAME":
        return {"auto_pad": "SAME_UPPER"}
    if algorithm == "VALID":
        return {"pads": [0] * (2 * spatial)}
    if len(pads) == spatial:
        return {"pads": pads * 2}
    if len(pads) == 2 * spatial:  # begin and end of each axis, one after the other
        return {"pads": pads[::2] + pads[1::2]}
    raise NotLowered(f"its paddings {pads} are not for {spatial} axes")


def channels_first(op: PdOp, argument: str, emit: Emitter, lower: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Lower an operator whose format may have channels last, between two transpositions if it has."""
    value = op[argument]
    if op.attr("data_format") not in ("NHWC", "NDHWC", "NLC", "NWC"):
        return lower(value)
    rank = op.rank(argument)
    value = emit("Transpose", [value], {"perm": [0, rank - 1, *range(1, rank - 1)]})
    return emit("Transpose", [lower(value)], {"perm": [0, *range(2, rank), 1]})


def convolution(spatial: int):
    """The rule of a convolution over a number of axes."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        same = op.attr("padding_algorithm") == "SAME"
        attributes = {
            "strides": op.attr("strides"),
            # Padding to the same extents, Paddle takes no notice of dilations.
            "dilations": [1] * spatial if same else op.attr("dilations"),
            "group": op.attr("groups"),
            **padding(op, spatial),
        }
        return channels_first(op, "input", emit, lambda x: emit("Conv", [x, op["filter"]], attributes))

    return rule


def transposed(spatial: int):
    """The rule of a transposed convolution; `output_size` says what strides leave open."""

    def rule(op: PdOp, emit: Emitter) -> ir.Value:
        strides, dilations = op.attr("strides"), op.attr("dilations")
        attributes = {"strides": strides, "dilations": dilations, "group": op.attr("groups"), **padding(op, spatial)}
        extra = list(op.attr("output_padding"))
        size = op.known_ints("output_size")
        if size is None:
            raise NotLowered("its output size is computed, and ONNX needs it known")
        if size and any(size):
            shape, kernel = op.shape("x"), op.shape("filter")
            pads = attributes.get("pads")
            if shape is None or kernel is None or None in shape[2:] or pads is None:
                raise NotLowered("its output size is given, and the extents of its input are open")
            least = [
                (shape[axis + 2] - 1) * strides[axis]
                - pads[axis]
                - pads[axis + spatial]
                + dilations[axis] * (kernel[axis + 2] - 1)
                + 1
                for axis in range(spatial)
            ]
            extra = [wanted - have for wanted, have in zip(size, least, strict=True)]
        if any(extra):
            attributes["output_padding"] = extra
        return channels_first(op, "x", emit, lambda x: emit("ConvTranspose", [x, op["filter"]], attributes))

    return rule


RULES = {
    "conv2d": convolution(2), "depthwise_conv2d": convolution(2), "conv3d": convolution(3),
    "conv2d_transpose": transposed(2), "depthwise_conv2d_transpose": transposed(2), "conv3d_transpose": transposed(3),
}  # fmt: skip
