"""Conditions under which the older meaning of an operator is the newer one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dovetail_transforms.lowering.node_facts import attribute, constant, extents, is_float, rank

if TYPE_CHECKING:
    import onnx_ir as ir


def _last_axis(node: ir.Node) -> bool:
    """All axes behind `axis` have one element, so that coercing them into one changes nothing."""
    axis, known = attribute(node, "axis", -1), extents(node.inputs[0])
    return axis == -1 or known is not None and all(extent == 1 for extent in known[axis % len(known) + 1 :])


def _bounds_in_order(node: ir.Node) -> bool:
    """Bounds that are both constant do not cross. Older versions say nothing about bounds that do."""
    low, high = ([*map(constant, node.inputs[1:3]), None, None])[:2]
    return low is None or high is None or not low > high


def _scalar_scale(node: ir.Node) -> bool:
    return rank(node.inputs[1]) == 0


def _integers_or_fmod(node: ir.Node) -> bool:
    return bool(attribute(node, "fmod", 0)) or not is_float(node.inputs[0])


def _output_half_pixel(node: ir.Node) -> bool:
    return attribute(node, "coordinate_transformation_mode") == "output_half_pixel"


def _two_spatial_axes(node: ir.Node) -> bool:
    return rank(node.inputs[0]) == 4


def _no_window_in_padding(node: ir.Node) -> bool:
    """No window starts in the padding at the end."""
    if not attribute(node, "ceil_mode", 0):
        return True
    kernel = attribute(node, "kernel_shape", [])
    ones = [1] * len(kernel)
    strides, dilations = attribute(node, "strides", ones), attribute(node, "dilations", ones)
    ends = attribute(node, "pads", [0] * 2 * len(kernel))[len(kernel) :]
    if attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return True  # the extents follow from the strides alone
    return all(
        not end and stride <= (size - 1) * dilation + 1
        for end, stride, size, dilation in zip(ends, strides, kernel, dilations)
    )


CONDITIONS: Mapping[str, Callable[[ir.Node], bool]] = {
    "bounds-in-order": _bounds_in_order,
    "integers-or-fmod": _integers_or_fmod,
    "last-axis": _last_axis,
    "no-window-in-padding": _no_window_in_padding,
    "output-half-pixel": _output_half_pixel,
    "scalar-scale": _scalar_scale,
    "two-spatial-axes": _two_spatial_axes,
}
