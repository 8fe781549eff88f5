"""Pooling windows, and inputs of Resize and Pad."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import shape_of

from dovetail_transforms.lowering.node_facts import (
    UNRELATED,
    attribute,
    closed,
    constant,
    extents,
    rank,
    required_constant,
)
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


def _explicit_ends(node: ir.Node, x: ir.Value) -> list[int] | None:
    """Return end paddings that yield the same windows without `ceil_mode`; None if an extent is open."""
    kernel = attribute(node, "kernel_shape")
    ones, known = [1] * len(kernel), closed((extents(x) or [None] * 3)[2:])
    if known is None:
        return None
    pads = attribute(node, "pads", [0] * 2 * len(kernel))
    strides, dilations = attribute(node, "strides", ones), attribute(node, "dilations", ones)
    ends = []
    for axis, (extent, size, stride, dilation) in enumerate(zip(known, kernel, strides, dilations)):
        before, after, covered = pads[axis], pads[axis + len(kernel)], (size - 1) * dilation + 1
        windows = -(-(extent + before + after - covered) // stride) + 1
        if (windows - 1) * stride >= extent + before:
            windows -= 1
        ends.append(max((windows - 1) * stride + covered - extent - before, 0))
    return ends


def _check(node: ir.Node, x: ir.Value) -> str:
    ends = _explicit_ends(node, x)
    if ends is None:
        return "a window may start in the padding at the end, as the extents are open"
    after = attribute(node, "pads", [0] * 2 * len(ends))[len(ends) :]
    if attribute(node, "count_include_pad", 0) and any(new > old for new, old in zip(ends, after)):
        return "a window reaches beyond the padding, and its mean counts the padding alone"
    if node.op_type == "LpPool" and any(new > old for new, old in zip(ends, after)):
        return "a window reaches beyond the padding"
    return ""


def _explicit_windows(op: Replacement, node: ir.Node, x: ir.Value):
    ends = _explicit_ends(node, x) or []
    starts = attribute(node, "pads", [0] * 2 * len(ends))[: len(ends)]
    return op.like(node, x, pads=[*starts, *ends], ceil_mode=None)


def _pattern(op, x, roi=None, scales=None, sizes=None):
    return op.Resize(x, roi, scales, sizes)


def _resize_inputs(
    op: Replacement, node: ir.Node, x: ir.Value, roi: ir.Value | None, scales: ir.Value | None, sizes: ir.Value | None
) -> ir.Value:
    """Replace absent inputs, which were mandatory, by empty tensors."""
    import numpy as np
    import onnx_ir as ir

    def empty(what: str) -> ir.Value:
        return op.constant(ir.tensor(np.empty(0, np.float32)), what)

    roi = empty("roi") if roi is None else roi
    scales = empty("scales") if scales is None else scales
    return op.like(node, x, roi, scales, *([] if sizes is None else [sizes]))


def _axes_check(node: ir.Node, x: ir.Value) -> str:
    for name, neutral in (("antialias", 0), ("keep_aspect_ratio_policy", "stretch")):
        if attribute(node, name, neutral) != neutral:
            return f"{name} is {attribute(node, name)}"
    if "axes" not in node.attributes:
        return UNRELATED
    return "the rank of its input is unknown" if rank(x) is None else ""


def _resize_axes(
    op: Replacement, node: ir.Node, x: ir.Value, roi: ir.Value | None, scales: ir.Value | None, sizes: ir.Value | None
) -> ir.Value:
    """Expand scales, sizes and regions to all axes."""
    every = len(shape_of(x))
    axes = [axis % every for axis in attribute(node, "axes")]
    if roi is not None:
        starts_and_ends = [*axes, *(axis + every for axis in axes)]
        roi = _widened(op, roi, starts_and_ends, _numbers(op, [0.0] * every + [1.0] * every, "roi_of_all"), 2 * every)
    if scales is not None:
        scales = _widened(op, scales, axes, _numbers(op, [1.0] * every, "scales_of_all"), every)
    if sizes is not None:
        known = closed(extents(x))
        rest = op.Shape(x) if known is None else _numbers(op, known, "extents")
        sizes = _widened(op, sizes, axes, rest, every)
    return op.like(node, x, roi, scales, *([] if sizes is None else [sizes]), axes=None)


def _numbers(op: Replacement, numbers: list[float] | list[int], what: str) -> ir.Value:
    import numpy as np
    import onnx_ir as ir

    return op.constant(ir.tensor(np.array(numbers, np.float32 if isinstance(numbers[0], float) else np.int64)), what)


def _widened(op: Replacement, given: ir.Value, places: list[int], rest: ir.Value, size: int) -> ir.Value:
    """Return `rest`, which has `size` elements, with the elements of `given` at `places`."""
    import numpy as np
    import onnx_ir as ir

    known, others = constant(given), constant(rest)
    if known is not None and others is not None and given.dtype == rest.dtype:
        full = others.copy()
        full[places] = known
        return op.constant(ir.tensor(full), "of_all_axes")
    order = np.arange(size) + len(places)
    order[places] = np.arange(len(places))
    index = op.constant(ir.tensor(order), "order")
    return op.Gather(op.Concat(given, rest, axis=0), index, axis=0)


def _pad_pattern(op, data, pads, value=None, axes=None):
    return op.Pad(data, pads, value, axes)


def _pad_check(data: ir.Value, axes: ir.Value | None) -> str:
    if axes is not None and constant(axes) is None:
        return f"its axes ('{axes.name}') are not constant"
    return "the rank of its input is unknown" if rank(data) is None else ""


def _pad_axes(
    op: Replacement, node: ir.Node, data: ir.Value, pads: ir.Value, value: ir.Value | None, axes: ir.Value | None
) -> ir.Value:
    """Expand paddings to all axes."""
    every = len(shape_of(data))
    listed = list(range(every)) if axes is None else [int(axis) % every for axis in required_constant(axes)]
    places = [*listed, *(axis + every for axis in listed)]
    wide = _widened(op, pads, places, _numbers(op, [0] * 2 * every, "no_pads"), 2 * every)
    return op.like(node, data, wide, *([] if value is None else [value]))


RULES = (
    Rewrite(
        "explicit-windows", lambda op, x: op.any_of("AveragePool", "LpPool", "MaxPool")(x), _explicit_windows, _check
    ),
    Rewrite("resize-inputs", _pattern, _resize_inputs),
    Rewrite("resize-axes", _pattern, _resize_axes, _axes_check),
    Rewrite("pad-axes", _pad_pattern, _pad_axes, _pad_check),
)
