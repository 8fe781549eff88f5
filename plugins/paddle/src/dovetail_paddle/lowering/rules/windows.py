"""Rules for windows of planes: deformable convolution, inverses of pooling and unfolding, temporal shifts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import int_list, joined, shape_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


def deformable_conv(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Convolve at displaced positions: sample them as one grid, then apply the weights as a product.

    ONNX has DeformConv since opset 19, but few engines support it; GridSample and pointwise convolution are common.
    """
    import numpy as np

    filters = op.constant("filter")
    inner, dtype = op.known_shape("x", 1), op.dtype("x")
    parts, groups, out = op.attr("deformable_groups"), op.attr("groups"), op.known_shape("offset", 2)
    if filters is None or inner is None or out is None:
        raise OpNotLowered("its filter is computed, or the extents of its input are open: fix them with --fix-shape")
    (channels, height, width), (rows, columns) = inner, out
    tall, wide = filters.shape[2:]
    count = tall * wide
    strides, pads, dilations = (op.attr(name) for name in ("strides", "paddings", "dilations"))
    # Position of each tap of each window without offset, in GridSample's order x, y.
    y = np.arange(rows)[:, None] * strides[0] - pads[0] + np.zeros((1, columns))
    x = np.arange(columns)[None] * strides[1] - pads[1] + np.zeros((rows, 1))
    taps = np.stack(np.meshgrid(np.arange(tall) * dilations[0], np.arange(wide) * dilations[1], indexing="ij"), -1)
    place = np.stack([x, y])[None] + taps.reshape(count, 2)[:, ::-1, None, None]  # count, 2, rows, columns
    offset = emit("Reshape", [op["offset"], emit.ints([-1, count, 2, rows, columns])])
    offset = emit("Gather", [offset, emit.ints([1, 0])], {"axis": 2})
    place = emit("Add", [offset, emit.constant(place.astype(dtype.numpy()))])
    # Pixel centers are at (2 * at + 1) / extent - 1.
    scale = np.array([2 / width, 2 / height]).reshape(2, 1, 1)
    first = np.array([1 / width - 1, 1 / height - 1]).reshape(2, 1, 1)
    place = emit("Mul", [place, emit.constant(scale.astype(dtype.numpy()))])
    place = emit("Add", [place, emit.constant(first.astype(dtype.numpy()))])
    grid = emit("Transpose", [place], {"perm": [0, 1, 3, 4, 2]})
    grid = emit("Reshape", [grid, emit.ints([-1, count * rows, columns, 2])])
    value = op["x"] if parts == 1 else emit("Reshape", [op["x"], emit.ints([-1, channels // parts, height, width])])
    mode = "linear" if emit.opset >= 20 else "bilinear"
    attributes = {"mode": mode, "padding_mode": "zeros", "align_corners": 0}
    value = emit("GridSample", [value, grid], attributes)
    value = emit("Reshape", [value, emit.ints([-1, channels // parts, count, rows * columns])])
    if op.original("mask") is not None:
        mask = emit("Reshape", [op["mask"], emit.ints([-1, 1, count, rows * columns])])
        value = emit("Mul", [value, mask])
    value = emit("Reshape", [value, emit.ints([-1, channels * count, rows, columns])])
    weights = emit.constant(filters.reshape(filters.shape[0], -1, 1, 1), f"{op.node.name}.filter")
    return emit("Conv", [value, weights], {"group": groups})


def fold(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Sum columns at their window positions, by a transposed convolution with one filter per position."""
    import numpy as np

    shape, size, kernel = op.shape("x"), op.attr("output_sizes"), op.attr("kernel_sizes")
    strides, dilations, pads = op.attr("strides"), op.attr("dilations"), op.attr("paddings")
    pads = pads if len(pads) == 4 else [*pads, *pads]
    if shape is None or shape[-2] is None:
        raise OpNotLowered("the number of its channels is open")
    count = kernel[0] * kernel[1]
    channels = shape[-2] // count
    reach = [dilations[axis] * (kernel[axis] - 1) + 1 for axis in range(2)]
    room = [size[axis] + pads[axis] + pads[axis + 2] - reach[axis] for axis in range(2)]
    windows = [room[axis] // strides[axis] + 1 for axis in range(2)]
    one = np.eye(count, dtype=op.dtype("x").numpy()).reshape(count, 1, *kernel)
    columns = emit("Reshape", [op["x"], emit.ints([-1, channels * count, *windows])])
    attributes = {
        "group": channels,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "output_padding": [room[axis] % strides[axis] for axis in range(2)],
    }
    made = emit("ConvTranspose", [columns, emit.constant(np.tile(one, (channels, 1, 1, 1)))], attributes)
    return made if len(shape) == 3 else emit("Reshape", [made, emit.ints([channels, *size])])


def unpool(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Put maxima back at their positions in the plane, with zeros elsewhere."""
    import numpy as np

    flat = emit.ints([0, 0, -1])
    values, places = (emit("Reshape", [value, flat]) for value in (op["x"], _wide(op, emit)))
    known = op.known_ints("output_size")
    if known is not None:
        size = emit.ints(known[-2:])
    else:
        size = emit("Slice", [int_list(op, "output_size", emit), *(emit.ints([n]) for n in (-2, (1 << 63) - 1))])
    area = emit("ReduceProd", [size, emit.ints([0])], {"keepdims": 1})
    start = emit("Shape", [op["x"]], {"end": 2})
    zeros = emit("ConstantOfShape", [joined([start, area], emit)], {"value": np.zeros(1, op.dtype("x").numpy())})
    made = emit("ScatterElements", [zeros, places, values], {"axis": 2})
    return emit("Reshape", [made, joined([start, size], emit)])


def _wide(op: PdOp, emit: GraphEmitter) -> ir.Value:
    from dovetail_paddle.lowering.shapes import as_int64

    return as_int64(op.operand("indices"), emit)


def lp_pool2d(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the norm of each window."""
    from dovetail_paddle.lowering.rules.convolution import channels_first, padding

    order = op.attr("norm_type")
    if order % 2 or order < 2 or op.attr("adaptive"):
        raise OpNotLowered(f"its norm is of order {order}, and even ones are supported")
    if op.attr("global_pooling"):
        return channels_first(op, "x", emit, lambda x: emit("GlobalLpPool", [x], {"p": int(order)}))
    attributes = {
        "kernel_shape": op.attr("kernel_size"),
        "strides": op.attr("strides"),
        "ceil_mode": int(op.attr("ceil_mode")),
        "p": int(order),
        **padding(op, 2),
    }
    return channels_first(op, "x", emit, lambda x: emit("LpPool", [x], attributes))


def temporal_shift(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Shift some channels one step back in time, and some one step forward."""
    shape, steps, ratio = op.shape("x"), op.attr("seg_num"), op.attr("shift_ratio")
    if shape is None or shape[1] is None or op.attr("data_format") != "NCHW":
        raise OpNotLowered("the number of its channels is open, or they come last")
    channels = shape[1]
    first, second = int(channels * ratio), int(channels * 2 * ratio)
    inner = shape_of(op, "x", emit, 1, 4)
    value = emit("Reshape", [op["x"], joined([emit.ints([-1, steps]), inner], emit)])
    cuts = [part for part in (first, second - first, channels - second) if part]
    parts = list(emit("Split", [value, emit.ints(cuts)], {"axis": 2}, outputs=len(cuts)))
    end = (1 << 63) - 1
    for at, (begin, last, pads) in enumerate([(0, -1, [0, 1, 0, 0, 0] + [0] * 5), (1, end, [0] * 6 + [1, 0, 0, 0])]):
        kept = emit("Slice", [parts[at], *(emit.ints([number]) for number in (begin, last, 1))])
        parts[at] = emit("Pad", [kept, emit.ints(pads)])
    made = emit("Concat", parts, {"axis": 2})
    return emit("Reshape", [made, joined([emit.ints([-1]), inner], emit)])


def affine_grid(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the positions of all pixels under affine maps."""
    import numpy as np

    size = op.known_ints("output_shape")
    if size is None or len(size) != 4:
        raise OpNotLowered("the extents of its result are computed, or not those of an image")
    height, width = size[2:]
    if op.attr("align_corners"):
        axes = [np.linspace(-1, 1, extent) for extent in (height, width)]
    else:
        axes = [(2 * np.arange(extent) + 1) / extent - 1 for extent in (height, width)]
    y, x = np.meshgrid(*axes, indexing="ij")
    base = np.stack([x, y, np.ones_like(x)], -1).reshape(height * width, 3).astype(op.dtype("input").numpy())
    theta = emit("Transpose", [op["input"]], {"perm": [0, 2, 1]})
    return emit("Reshape", [emit("MatMul", [emit.constant(base), theta]), emit.ints([-1, height, width, 2])])


RULES = {
    "deformable_conv": deformable_conv, "fold": fold, "unpool": unpool, "lp_pool2d": lp_pool2d,
    "temporal_shift": temporal_shift, "affine_grid": affine_grid,
}  # fmt: skip
