"""Operators that move a window over extents, or sample them, with any attributes that ONNX allows."""

from __future__ import annotations

import numpy as np

from .graph import Graph, Impossible

__all__ = ["conv", "conv_transpose", "divisor", "global_pool", "grid_sample", "pool", "resize", "roi_align"]


def _window(g: Graph, extents: tuple[int, ...], padded: bool = True, dilated: bool = True) -> dict:
    """Kernel, strides, dilations and pads, or `auto_pad`, that leave at least one position."""
    kernel = [g.choose([1, extent, g.integer(1, min(5, extent))]) for extent in extents]
    strides = [g.choose([1, 1, 2, 3]) for _ in extents]
    dilations = [g.integer(1, 3) if dilated and g.chance(0.2) else 1 for _ in extents]
    options = {"kernel_shape": kernel, "strides": strides}
    for axis, extent in enumerate(extents):
        if (kernel[axis] - 1) * dilations[axis] + 1 > extent:
            dilations[axis] = 1
    if dilated:
        options["dilations"] = dilations
    if g.chance(0.25):
        kind = g.choose(["VALID", "SAME_UPPER", "SAME_LOWER"])
        if kind != "VALID" and dilated:
            options["dilations"] = [1] * len(extents)
        options["auto_pad"] = kind
    elif padded and g.chance(0.6):
        sides = [(g.integer(0, size // 2), g.integer(0, size // 2)) for size in kernel]
        options["pads"] = [begin for begin, _ in sides] + [end for _, end in sides]
    return options


def divisor(g: Graph, channels: int) -> int:
    """Return one of the divisors of a number of channels, 1 and all of them more often."""
    return int(g.choose([1, channels, *(n for n in range(1, channels + 1) if channels % n == 0)]))


def conv(g: Graph) -> None:
    """Add a convolution with any window, groups and number of results."""
    value = g.ranked(3, 4, 4, 4, 5)
    group = divisor(g, value.shape[1])
    wanted = group * g.choose([1, 1, 2, 3, 8])
    options = _window(g, value.shape[2:])
    shape = (wanted, value.shape[1] // group, *options["kernel_shape"])
    weight = g.weight(*shape, scale=1 / np.sqrt(np.prod(shape[1:])))
    bias = g.weight(wanted, scale=0.1) if g.chance(0.6) else None
    g.node("Conv", [value, weight, bias], bound=value.bound * 2, group=group, **options)


def conv_transpose(g: Graph) -> None:
    """Add a transposed convolution."""
    value = g.ranked(3, 4, 4, 5)
    group = divisor(g, value.shape[1])
    wanted = g.choose([1, 2, 3, 8])
    extents = value.shape[2:]
    kernel = [g.integer(1, 4) for _ in extents]
    strides = [g.integer(1, 3) for _ in extents]
    weight = g.weight(value.shape[1], wanted, *kernel, scale=1 / np.sqrt(value.shape[1] / group * 2))
    bias = g.weight(wanted * group, scale=0.1) if g.chance(0.5) else None
    options = {"strides": strides, "kernel_shape": kernel, "group": group}
    if g.chance(0.3):
        options["dilations"] = [g.integer(1, 2) for _ in extents]
    if g.chance(0.4):
        sides = [(g.integer(0, (size - 1) // 2), g.integer(0, (size - 1) // 2)) for size in kernel]
        options["pads"] = [begin for begin, _ in sides] + [end for _, end in sides]
    elif g.chance(0.3):
        options["auto_pad"] = g.choose(["VALID", "SAME_UPPER", "SAME_LOWER"])
    if g.chance(0.3) and "auto_pad" not in options:
        options["output_padding"] = [g.integer(0, stride - 1) for stride in strides]
    g.node("ConvTranspose", [value, weight, bias], bound=value.bound * 2, **options)


def pool(op_type: str):
    """Return the function that adds a pool."""

    def make(g: Graph) -> None:
        value = g.ranked(3, 4, 4, 4, 5)
        options = _window(g, value.shape[2:], dilated=op_type == "MaxPool")
        if op_type == "AveragePool":
            options["count_include_pad"] = g.integer(0, 1)
        if op_type == "LpPool":
            options["p"] = g.integer(1, 3)
        if g.chance(0.3) and op_type != "LpPool" and "auto_pad" not in options:
            options["ceil_mode"] = 1
        if op_type == "MaxPool" and g.chance(0.3):
            g.results(op_type, [value], 2, bound=value.bound, **options)
        else:
            g.node(op_type, [value], bound=value.bound * 3, **options)

    return make


def roi_align(g: Graph) -> None:
    """Add a RoiAlign of a few boxes."""
    if g.opset >= 22:
        raise Impossible  # ONNX Runtime, the reference, has no kernel
    value = g.ranked(4)
    count = g.choose([1, 2, 3, 5])
    corners = g.rng.uniform(0, 4, (count, 2))
    boxes = np.concatenate([corners, corners + g.rng.uniform(0.2, 6, (count, 2))], axis=1)
    rois = g.constant(boxes.astype(np.float32))
    batch = g.constant(g.rng.integers(0, value.shape[0], count).astype(np.int64))
    options = {
        "output_height": g.integer(1, 4),
        "output_width": g.integer(1, 4),
        "sampling_ratio": g.integer(0, 3),
        "mode": "avg",
        "spatial_scale": g.choose([1.0, 0.5, 0.25]),
    }
    if g.opset >= 16:
        options["coordinate_transformation_mode"] = g.choose(["half_pixel", "output_half_pixel"])
    g.node("RoiAlign", [value, rois, batch], bound=value.bound, **options)


def grid_sample(g: Graph) -> None:
    """Add a GridSample."""
    value = g.ranked(4)
    grid = g.weight(value.shape[0], g.integer(1, 4), g.integer(1, 4), 2, scale=0.6)
    modes = ["linear", "nearest", "cubic"] if g.opset >= 20 else ["bilinear", "nearest", "bicubic"]
    options = {"align_corners": g.integer(0, 1), "padding_mode": g.choose(["zeros", "border", "reflection"])}
    g.node("GridSample", [value, grid], bound=value.bound * 2, mode=g.choose(modes), **options)


def global_pool(op_type: str):
    """Return the function that adds a pool over all extents."""

    def make(g: Graph) -> None:
        value = g.ranked(3, 4, 5)
        g.node(op_type, [value], bound=value.bound)

    return make


def resize(g: Graph) -> None:
    """Add a Resize to given extents."""
    value = g.ranked(3, 4, 4, 5)
    mode = g.choose(["nearest", "linear", "cubic"] if value.rank == 4 else ["nearest", "linear"])
    where = g.choose(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    options = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        options["nearest_mode"] = g.choose(["floor", "round_prefer_floor", "ceil", "round_prefer_ceil"])
    factors = [1.0, 1.0, *(g.choose([0.5, 1.0, 1.5, 2.0, 3.0]) for _ in value.shape[2:])]
    sizes = [max(1, int(extent * factor)) for extent, factor in zip(value.shape, factors)]
    g.node("Resize", [value, None, None, g.ints(*sizes)], bound=value.bound * 1.3, **options)
