"""Rules that move elements: transposition, concatenation, splitting, padding, flipping, and pixel shuffling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import constant_of

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_list, int_list

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


_END = (1 << 63) - 1


def transpose(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Permute axes."""
    perm = [axis % len(op.attr("perm")) for axis in op.attr("perm")]
    return op["x"] if perm == list(range(len(perm))) else emit("Transpose", [op["x"]], {"perm": perm})


def concat(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Concatenate tensors; narrowed extents remain int64."""
    items, axis = op.items("x"), int(op.number("axis"))
    if len(items) == 1:
        return items[0]
    wide = [emit.wide(item) for item in items]
    if any(item is not None for item in wide) and all(
        item is not None or items[at].const_value is not None for at, item in enumerate(wide)
    ):
        joined = [
            item if item is not None else emit.constant(constant_of(items[at]).numpy().astype("int64"))
            for at, item in enumerate(wide)
        ]
        return op.narrow(emit("Concat", joined, {"axis": axis}))
    return emit("Concat", items, {"axis": axis})


def stack(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Stack tensors along a new axis."""
    axis = op.attr("axis")
    items = [emit("Unsqueeze", [item, emit.ints([axis])]) for item in op.items("x")]
    return items[0] if len(items) == 1 else emit("Concat", items, {"axis": axis})


def split(op: PdOp, emit: GraphEmitter) -> list[ir.Value]:
    """Split into parts of given extents; one may be -1."""
    sections, axis = op.ints("sections"), op.axis(int(op.number("axis")), "x")
    if len(sections) == 1:
        return [op["x"]]
    if -1 in sections:
        shape = op.shape("x")
        whole = None if shape is None else shape[axis]
        if whole is None:
            raise OpNotLowered("the extent of one part is open, and so is that of its input")
        rest = whole - sum(part for part in sections if part >= 0)
        sections = [rest if part < 0 else part for part in sections]
    return list(emit("Split", [op["x"], emit.ints(sections)], {"axis": axis}, outputs=len(sections)))


def equal_parts(op: PdOp, emit: GraphEmitter, count: int, axis: int, argument: str) -> list[ir.Value]:
    """Split into equal parts along an axis."""
    if count == 1:
        return [op[argument]]
    return list(emit("Split", [op[argument]], {"axis": axis, "num_outputs": count}, outputs=count))


def split_with_num(op: PdOp, emit: GraphEmitter) -> list[ir.Value]:
    """Split into a number of equal parts."""
    return equal_parts(op, emit, op.attr("num"), op.axis(int(op.number("axis")), "x"), "x")


def unbind(op: PdOp, emit: GraphEmitter) -> list[ir.Value]:
    """Split into slices along an axis, and drop the axis."""
    argument = op.operator.operands[0].name
    axis = op.axis(op.attr("axis"), argument)
    count = op.attr("num") if op.name == "unstack" and op.attr("num") > 0 else op.ranked_shape(argument)[axis]
    if count is None:
        raise OpNotLowered("the number of its slices is open")
    parts = equal_parts(op, emit, count, axis, argument)
    return [emit("Squeeze", [part, emit.ints([axis])]) for part in parts]


def pad3d(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Pad the last axes; pads are listed from the last axis on."""
    mode = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[op.attr("mode")]
    known, rank = op.known_ints("paddings"), op.rank("x")
    last = op.attr("data_format").endswith("C")
    if known is None:
        return _computed_pads(op, mode, last, emit)
    count = len(known) // 2
    axes = [rank - 1 - last - at for at in range(count)]
    begins, ends = [0] * rank, [0] * rank
    for at, axis in enumerate(axes):
        begins[axis], ends[axis] = known[2 * at], known[2 * at + 1]
    if mode == "wrap":
        value = op["x"]
        for axis in axes:
            value = _wrapped(value, axis, begins[axis], ends[axis], emit)
        return value
    inputs = [op["x"], emit.ints([*begins, *ends])]
    if mode == "constant":
        inputs.append(emit.scalar(op.attr("pad_value"), op.dtype("x")))
    return emit("Pad", inputs, {"mode": mode})


def _computed_pads(op: PdOp, mode: str, last: bool, emit: GraphEmitter) -> ir.Value:
    """Reorder computed pads from begin-end pairs, last axis first, to the begins and ends of all axes.

    Not with a list of axes, which ONNX Runtime's transpose optimizer misreads (1.32).
    """
    import numpy as np

    if mode == "wrap":
        raise OpNotLowered("its paddings are computed, and its axes continue at the other end")
    pairs = emit("Reshape", [int_list(op, "paddings", emit), emit.ints([-1, 2])])
    pairs = emit("Slice", [pairs, *(emit.ints([number]) for number in (-1, -_END, 0, -1))])
    before, behind = (emit.constant(np.zeros((2, count), np.int64)) for count in (1 if last else 2, 1))
    parts = [before, emit("Transpose", [pairs], {"perm": [1, 0]}), *([behind] if last else [])]
    pads = emit("Reshape", [emit("Concat", parts, {"axis": 1}), emit.ints([-1])])
    value = emit.scalar(op.attr("pad_value"), op.dtype("x")) if mode == "constant" else None
    return emit("Pad", [op["x"], pads, value], {"mode": mode})


def crop(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Crop each axis from an offset; an extent of -1 keeps the rest."""
    import numpy as np

    offsets, size = int_list(op, "offsets", emit), int_list(op, "shape", emit)
    ends = emit("Add", [offsets, size])
    known = op.known_ints("shape")
    if known is None or -1 in known:
        rest = emit("Equal", [size, emit.constant(np.array(-1, np.int64))])
        ends = emit("Where", [rest, emit.constant(np.array(_END, np.int64)), ends])
    return emit("Slice", [op["x"], offsets, ends, emit.ints(range(op.rank("x")))])


def _wrapped(value: ir.Value, axis: int, begin: int, end: int, emit: GraphEmitter) -> ir.Value:
    """Pad one axis with elements from its other end."""
    parts = [value]
    if begin:
        parts.insert(0, emit("Slice", [value, emit.ints([-begin]), emit.ints([_END]), emit.ints([axis])]))
    if end:
        parts.append(emit("Slice", [value, emit.ints([0]), emit.ints([end]), emit.ints([axis])]))
    return value if len(parts) == 1 else emit("Concat", parts, {"axis": axis})


def pad(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Pad every axis; pads are listed as begin-end pairs."""
    pads = op.attr("paddings")
    value = emit.scalar(op.number("pad_value"), op.dtype("x"))
    return emit("Pad", [op["x"], emit.ints([*pads[::2], *pads[1::2]]), value])


def flip(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Reverse axes."""
    axes = op.ints("axis")
    count = len(axes)
    starts, ends, steps = ([number] * count for number in (-1, -_END, -1))
    return emit("Slice", [op["x"], *map(emit.ints, (starts, ends, axes, steps))])


def roll(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Rotate axes cyclically."""
    shifts, axes, value = op.ints("shifts"), op.attr("axis"), op["x"]
    if not axes:
        flat = emit("Reshape", [value, emit.ints([-1])])
        return emit("Reshape", [_rolled(flat, shifts[0], 0, None, emit), emit("Shape", [value])])
    shape = op.shape("x")
    for shift, axis in zip(shifts, axes, strict=True):
        value = _rolled(value, shift, axis, None if shape is None else shape[axis], emit)
    return value


def _rolled(value: ir.Value, shift: int, axis: int, extent: int | None, emit: GraphEmitter) -> ir.Value:
    if extent:
        shift %= extent
    if shift == 0:
        return value
    tail = emit("Slice", [value, emit.ints([-shift]), emit.ints([_END]), emit.ints([axis])])
    head = emit("Slice", [value, emit.ints([0]), emit.ints([-shift]), emit.ints([axis])])
    return emit("Concat", [tail, head], {"axis": axis})


def pixel_shuffle(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Rearrange channels to blocks of pixels."""
    from dovetail_paddle.lowering.rules.convolution import channels_first

    factor = op.attr("upscale_factor")
    return channels_first(op, "x", emit, lambda x: emit("DepthToSpace", [x], {"blocksize": factor, "mode": "CRD"}))


def pixel_unshuffle(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Rearrange blocks of pixels to channels, the inverse of `pixel_shuffle`."""
    factor, inner = op.attr("downscale_factor"), op.known_shape("x", 1)
    if inner is None or op.attr("data_format") != "NCHW":
        raise OpNotLowered("it needs known extents and channels first")
    channels, height, width = inner
    small = [channels, height // factor, factor, width // factor, factor]
    value = emit("Reshape", [op["x"], emit.ints([-1, *small])])
    value = emit("Transpose", [value], {"perm": [0, 1, 3, 5, 2, 4]})
    return emit("Reshape", [value, emit.ints([-1, channels * factor * factor, height // factor, width // factor])])


def shuffle_channel(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Interleave the channels of groups."""
    group, inner = op.attr("group" if op.name == "shuffle_channel" else "groups"), op.known_shape("x", 1)
    last = op.name == "channel_shuffle" and op.attr("data_format") != "NCHW"
    if inner is None or last:
        raise OpNotLowered("it needs known extents")
    channels, height, width = inner
    value = emit("Reshape", [op["x"], emit.ints([-1, group, channels // group, height, width])])
    value = emit("Transpose", [value], {"perm": [0, 2, 1, 3, 4]})
    return emit("Reshape", [value, emit.ints([-1, channels, height, width])])


def unfold(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Extract windows as columns, by a convolution with one filter per window position."""
    import numpy as np

    shape, kernel = op.shape("x"), op.attr("kernel_sizes")
    if shape is None or shape[1] is None:
        raise OpNotLowered("the number of its channels is open")
    channels, size = shape[1], kernel[0] * kernel[1]
    one = np.eye(size, dtype=op.dtype("x").numpy()).reshape(size, 1, *kernel)
    filters = emit.constant(np.tile(one, (channels, 1, 1, 1)))
    pads = op.attr("paddings")
    attributes = {
        "group": channels,
        "strides": op.attr("strides"),
        "dilations": op.attr("dilations"),
        "pads": pads if len(pads) == 4 else [*pads, *pads],
    }
    return emit("Reshape", [emit("Conv", [op["x"], filters], attributes), emit.ints([0, 0, -1])])


def repeat_interleave(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Repeat each slice along an axis several times."""
    times, axis = op.attr("repeats"), op.axis(op.attr("axis"), "x")
    extent = op.ranked_shape("x")[axis]
    if extent is None:
        raise OpNotLowered("the extent of its axis is open")
    index = emit.ints([at for at in range(extent) for _ in range(times)])
    return emit("Gather", [op["x"], index], {"axis": axis})


def repeat_by_numbers(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Repeat each slice along an axis as often as a list says."""
    import numpy as np
    import onnx_ir as ir

    ends = emit("CumSum", [as_list(op.operand("repeats"), emit), emit.constant(np.array(0, np.int64))])
    whole = emit("Squeeze", [emit("Slice", [ends, emit.ints([-1]), emit.ints([1 << 62])]), emit.ints([0])])
    zero, one = (emit.constant(np.array(number, np.int64)) for number in (0, 1))
    places = emit("Unsqueeze", [emit("Range", [zero, whole, one]), emit.ints([1])])
    passed = emit.cast(emit("GreaterOrEqual", [places, ends]), ir.DataType.INT64)
    index = emit("ReduceSum", [passed, emit.ints([1])], {"keepdims": 0})
    return emit("Gather", [op["x"], index], {"axis": op.axis(op.attr("axis"), "x")})


def view_shape(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Reshape to known extents."""
    return emit("Reshape", [op["input"], emit.ints(op.attr("dims"))])


def triangle(upper: bool):
    """Create the rule of a triangle of a matrix."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        import numpy as np

        diagonal = emit.constant(np.array(op.attr("diagonal"), np.int64))
        return emit("Trilu", [op["x"], diagonal], {"upper": int(upper)})

    return rule


RULES = {
    "transpose": transpose, "concat": concat, "stack": stack, "split": split, "split_with_num": split_with_num,
    "unbind": unbind, "unstack": unbind, "pad3d": pad3d, "pad": pad, "flip": flip, "reverse": flip, "roll": roll,
    "pixel_shuffle": pixel_shuffle, "pixel_unshuffle": pixel_unshuffle, "shuffle_channel": shuffle_channel,
    "channel_shuffle": shuffle_channel, "repeat_interleave": repeat_interleave,
    "repeat_interleave_with_tensor_index": repeat_by_numbers, "view_shape": view_shape,
    "unfold": unfold, "crop": crop, "tril": triangle(False), "triu": triangle(True),
}  # fmt: skip
