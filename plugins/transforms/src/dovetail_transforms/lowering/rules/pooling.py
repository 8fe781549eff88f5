"""Pooling whose windows start in the padding at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_transforms.lowering.node_facts import attribute, closed, extents
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


def _explicit_ends(node: ir.Node, x: ir.Value) -> list[int] | None:
    """Return the paddings at the ends that give the same windows without `ceil_mode`; None if an extent is open."""
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


RULES = (
    Rewrite(
        "explicit-windows", lambda op, x: op.any_of("AveragePool", "LpPool", "MaxPool")(x), _explicit_windows, _check
    ),
)
