"""Padding of ConvTranspose written as numbers, where `auto_pad` or `output_shape` describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.ir import input_of
from dovetail_transforms import Fusion, Rewrite, extents

if TYPE_CHECKING:
    import onnx_ir as ir

_LISTS = ("dilations", "output_padding", "strides")


def _why_not(node: ir.Node) -> str:
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    if mode in ("NOTSET", "VALID") and "output_shape" not in node.attributes:
        return "its padding is explicit"
    filters = extents(input_of(node, 1))
    if filters is None or None in filters[2:]:
        return "the extents of its filters are unknown"
    if "output_shape" in node.attributes:
        data = extents(input_of(node, 0))
        if data is None or None in data[2:]:
            return "the extents of its input are unknown"
    return "" if min(_totals(node)) >= 0 else "its result is larger than what its filters reach"


def _totals(node: ir.Node) -> list[int]:
    """Return how much of the whole result is cut off, at both ends together, for each axis of the image."""
    filters, data = extents(input_of(node, 1)) or [], extents(input_of(node, 0)) or []
    sizes = [int(extent or 0) for extent in filters[2:]]
    dilations, added, strides = (
        node.attributes.get_ints(name, [name != "output_padding"] * len(sizes)) for name in _LISTS
    )
    overlaps = [
        (size - 1) * step + 1 + more - stride for size, step, more, stride in zip(sizes, dilations, added, strides)
    ]
    wanted = node.attributes.get_ints("output_shape", ())
    if not wanted:  # SAME_UPPER and SAME_LOWER give the extent of the input times the stride
        return overlaps
    images = [int(extent or 0) for extent in data[2:]]
    # exporters may write the whole shape of the result, as opset 1 had it
    return [
        overlap + extent * stride - target
        for overlap, extent, stride, target in zip(overlaps, images, strides, wanted[-len(images) :])
    ]


def _explicit(op: Any, node: ir.Node) -> ir.Value:
    smaller = [total // 2 for total in _totals(node)]
    larger = [total - half for total, half in zip(_totals(node), smaller)]
    upper = node.attributes.get_string("auto_pad", "NOTSET") == "SAME_UPPER"
    pads = [*smaller, *larger] if upper else [*larger, *smaller]
    return op.like(node, *node.inputs, auto_pad=None, output_shape=None, pads=pads)


class ExplicitPads(Fusion):
    """ConvTranspose with `pads` in place of `auto_pad` and `output_shape`.

    OpenVINO cuts off the wrong end of the result for these, or none where an extent is open. With `auto_pad`, the
    padding does not depend on the extents of the input; with `output_shape`, these must be known.
    """

    name, operator, opset = "explicit-pads", "ConvTranspose", 11
    general = False
    rewrites = (Rewrite("explicit-pads", lambda op: op.ConvTranspose(...), _explicit, _why_not),)
