"""Rules for convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import int_list

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


def padding(op: PdOp, spatial: int) -> dict[str, Any]:
    """Return the padding attributes of an operator: `pads` or `auto_pad`."""
    algorithm, pads = op.attr("padding_algorithm"), list(op.attr("paddings"))
    if algorithm == "SAME":
        return {"auto_pad": "SAME_UPPER"}
    if algorithm == "VALID":
        return {"pads": [0] * (2 * spatial)}
    if len(pads) == spatial:
        return {"pads": pads * 2}
    if len(pads) == 2 * spatial:  # begin and end of each axis in turn
        return {"pads": pads[::2] + pads[1::2]}
    raise OpNotLowered(f"its paddings {pads} are not for {spatial} axes")


def channels_first(op: PdOp, argument: str, emit: GraphEmitter, lower: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Lower an operator; if its layout is channels-last, between two transpositions."""
    value = op[argument]
    if op.attr("data_format") not in ("NHWC", "NDHWC", "NLC", "NWC"):
        return lower(value)
    rank = op.rank(argument)
    value = emit("Transpose", [value], {"perm": [0, rank - 1, *range(1, rank - 1)]})
    return emit("Transpose", [lower(value)], {"perm": [0, *range(2, rank), 1]})


def convolution(spatial: int):
    """Create the rule of a convolution over a number of spatial axes."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        same = op.attr("padding_algorithm") == "SAME"
        attributes = {
            "strides": op.attr("strides"),
            # With SAME padding, Paddle ignores dilations.
            "dilations": [1] * spatial if same else op.attr("dilations"),
            "group": op.attr("groups"),
            **padding(op, spatial),
        }
        return channels_first(op, "input", emit, lambda x: emit("Conv", [x, op["filter"]], attributes))

    return rule


def _kernel(op: PdOp) -> tuple[int, ...]:
    """Return the window extents, as declared by the filter."""
    return cast("tuple[int, ...]", op.ranked_shape("filter")[2:])


def _same(op: PdOp, spatial: int) -> list[int] | None:
    """Return Paddle's crop of a transposed convolution with SAME padding; None if extents are open.

    The crop equals the padding of the forward convolution on an input with these extents.
    """
    shape, kernel, strides = op.shape("x"), _kernel(op), op.attr("strides")
    last = op.attr("data_format").endswith("C")
    have = (None,) * spatial if shape is None else shape[1 : spatial + 1] if last else shape[2:]
    cut = []
    for extent, step, reach in zip(have, strides, kernel, strict=True):
        if extent is None and step > 1:
            return None
        cut.append(max(reach - step + (0 if extent is None else -extent % step), 0))
    return [*(both // 2 for both in cut), *(both - both // 2 for both in cut)]


def transposed(spatial: int):
    """Create the rule of a transposed convolution; `output_size` resolves the ambiguity of strides."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        strides, dilations = op.attr("strides"), op.attr("dilations")
        attributes = {"strides": strides, "dilations": dilations, "group": op.attr("groups"), **padding(op, spatial)}
        if op.attr("padding_algorithm") == "SAME":
            # As in the forward convolution, Paddle ignores dilations.
            attributes["dilations"] = dilations = [1] * spatial
            del attributes["auto_pad"]
            attributes["pads"] = _same(op, spatial)
            if attributes["pads"] is None:
                return channels_first(op, "x", emit, lambda x: _cut(op, x, spatial, attributes, emit))
        extra = list(op.attr("output_padding"))
        size = op.known_ints("output_size")
        if size is None:
            return channels_first(op, "x", emit, lambda x: _sized(op, x, spatial, attributes, emit))
        if size and any(size):
            have, kernel = op.known_shape("x", 2), op.known_shape("filter", 2)
            if have is None or kernel is None:
                return channels_first(op, "x", emit, lambda x: _sized(op, x, spatial, attributes, emit))
            pads = attributes["pads"]
            least = [
                (have[axis] - 1) * strides[axis]
                - pads[axis]
                - pads[axis + spatial]
                + dilations[axis] * (kernel[axis] - 1)
                + 1
                for axis in range(spatial)
            ]
            extra = [wanted - given for wanted, given in zip(size, least, strict=True)]
        if any(extra):
            attributes["output_padding"] = extra
        return channels_first(op, "x", emit, lambda x: emit("ConvTranspose", [x, op["filter"]], attributes))

    return rule


def _sized(op: PdOp, x: ir.Value, spatial: int, attributes: dict[str, Any], emit: GraphEmitter) -> ir.Value:
    """Compute the largest result that strides allow, and crop it to the wanted extents."""
    attributes["output_padding"] = [step - 1 for step in attributes["strides"]]
    made = emit("ConvTranspose", [x, op["filter"]], attributes)
    axes = emit.ints(range(2, spatial + 2))
    return emit("Slice", [made, emit.ints([0] * spatial), int_list(op, "output_size", emit), axes])


def _cut(op: PdOp, x: ir.Value, spatial: int, attributes: dict[str, Any], emit: GraphEmitter) -> ir.Value:
    """Compute the result without padding, and crop both ends according to open extents."""
    if any(op.attr("output_padding")) or op.known_ints("output_size") != []:
        raise OpNotLowered(
            "it pads to the same extents, its output size is given, and the extents of its input are open"
        )
    made = emit("ConvTranspose", [x, op["filter"]], {**attributes, "pads": None})
    strides, kernel = attributes["strides"], _kernel(op)
    have = emit("Shape", [x], {"start": 2})
    steps = emit.ints(strides)
    missing = emit("Mod", [emit("Neg", [have]), steps])
    both = emit("Add", [missing, emit.ints([reach - step for reach, step in zip(kernel, strides, strict=True)])])
    both = emit("Max", [both, emit.ints([0])])
    begins = emit("Div", [both, emit.ints([2])])
    whole = emit("Shape", [made], {"start": 2})
    ends = emit("Add", [emit("Sub", [whole, both]), begins])
    return emit("Slice", [made, begins, ends, emit.ints(range(2, spatial + 2))])


RULES = {
    "conv2d": convolution(2), "depthwise_conv2d": convolution(2), "conv3d": convolution(3),
    "conv2d_transpose": transposed(2), "depthwise_conv2d_transpose": transposed(2), "conv3d_transpose": transposed(3),
}  # fmt: skip
