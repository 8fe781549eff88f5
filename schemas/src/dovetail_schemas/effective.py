"""Effective attributes: defaults filled in, and differences between opsets normalized.

Each function computes one name from the view of the node. `NotImplemented` means that the name needs no normalization
for this operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_schemas.terms import ABSENT, Unknown

if TYPE_CHECKING:
    from dovetail_schemas.node_view import NodeView


_WEIGHT_AT = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "DeformConv": 1, "QLinearConv": 3}
_WINDOWED = {*_WEIGHT_AT, "AveragePool", "MaxPool", "LpPool", "MaxUnpool"}
_UNORDERED_AXES = ("Reduce", "Squeeze", "Unsqueeze")


def effective(view: NodeView, name: str) -> object:
    """Return the effective value of an attribute, or of an input that was one; `NotImplemented` if it is as written.

    An invalid node (an axis beyond the rank, a stride of 0) has no effective values; they are unknown.
    """
    rule = _RULES.get(name)
    if rule is None:
        return NotImplemented
    try:
        return rule(view, view.written(name))
    except (ArithmeticError, IndexError, TypeError):
        return Unknown(name)


def _kernel_shape(view: NodeView, written: object) -> object:
    if written is not ABSENT or view.op_type not in _WEIGHT_AT:
        return written
    extents = view.extents_at(_WEIGHT_AT[view.op_type])
    if extents is None or not all(isinstance(extent, int) for extent in extents):
        return Unknown("kernel_shape")
    return tuple(extents[2:])


def _per_axis(name: str, default: int):
    def rule(view: NodeView, written: object) -> object:
        if written is not ABSENT or view.op_type not in _WINDOWED:
            return written
        kernel = view["kernel_shape"]
        if isinstance(kernel, Unknown):
            return Unknown(name)
        return (default,) * len(kernel) if isinstance(kernel, tuple) else written

    return rule


def _pads(view: NodeView, written: object) -> object:
    mode = view.written("auto_pad")
    if view.op_type not in _WINDOWED or mode in (ABSENT, "NOTSET"):
        return _no_pads(view) if written is ABSENT else written
    kernel, strides, dilations = view["kernel_shape"], view["strides"], view["dilations"]
    extents = view.extents_at(0)
    if mode == "VALID":
        return _no_pads(view)
    if not isinstance(kernel, tuple) or not isinstance(strides, tuple):
        return Unknown("pads")
    if not isinstance(dilations, tuple):  # pooling before opset 10
        dilations = (1,) * len(kernel)
    if view.op_type == "ConvTranspose" or extents is None or not all(isinstance(x, int) for x in extents[2:]):
        return Unknown("pads")
    before, after = [], []
    for extent, size, stride, dilation in zip(extents[2:], kernel, strides, dilations):
        total = max((-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
        small, large = total // 2, total - total // 2
        before.append(large if mode == "SAME_LOWER" else small)
        after.append(small if mode == "SAME_LOWER" else large)
    return (*before, *after)


def _no_pads(view: NodeView) -> object:
    """Return zero padding for both ends of every axis of the window."""
    if view.op_type not in _WINDOWED:
        return ABSENT
    kernel = view["kernel_shape"]
    if isinstance(kernel, Unknown):
        return Unknown("pads")
    return (0,) * 2 * len(kernel) if isinstance(kernel, tuple) else ABSENT


def _axis(view: NodeView, written: object) -> object:
    if isinstance(written, tuple) and len(written) == 1:
        written = written[0]
    if not isinstance(written, int) or written >= 0:
        return written
    rank = view.rank_at(0)
    if rank is None:
        return Unknown("axis")
    return written + rank + (view.op_type == "OneHot")


def _axes(view: NodeView, written: object) -> object:
    if isinstance(written, Unknown):
        return written
    extents = view.extents_at(0)
    rank = None if extents is None else len(extents)
    if isinstance(written, int):
        written = (written,)
    if written is ABSENT or (written == () and view.op_type.startswith("Reduce")):
        return _axes_left_out(view, extents)
    if not isinstance(written, tuple):
        return written
    if any(axis < 0 for axis in written):
        if rank is None:
            return Unknown("axes")
        whole = rank + (len(written) if view.op_type == "Unsqueeze" else 0)
        written = tuple(axis + whole if axis < 0 else axis for axis in written)
    return tuple(sorted(written)) if view.op_type.startswith(_UNORDERED_AXES) else written


def _axes_left_out(view: NodeView, extents: list | None) -> object:
    if view.op_type.startswith("Reduce") and view.written("noop_with_empty_axes") == 1:
        return ()
    if view.op_type == "Slice":
        starts = view["starts"]
        return tuple(range(len(starts))) if isinstance(starts, tuple) else Unknown("axes", "constant")
    if not view.op_type.startswith(("Reduce", "Squeeze", "Pad", "CenterCropPad")):
        return ABSENT
    if extents is None or (view.op_type == "Squeeze" and not all(isinstance(x, int) for x in extents)):
        return Unknown("axes")
    return tuple(i for i, extent in enumerate(extents) if view.op_type != "Squeeze" or extent == 1)


def _steps(view: NodeView, written: object) -> object:
    starts = view["starts"] if written is ABSENT and view.op_type == "Slice" else None
    return (1,) * len(starts) if isinstance(starts, tuple) else written


def _split(view: NodeView, written: object) -> object:
    if written is not ABSENT or view.op_type != "Split":
        return written
    extents, axis, parts = view.extents_at(0), view["axis"], view.count_outputs()
    if extents is None or not isinstance(axis, int) or not isinstance(extents[axis], int) or not parts:
        return Unknown("split")
    size = -(-extents[axis] // parts)
    return (*(size,) * (parts - 1), extents[axis] - size * (parts - 1))


def _perm(view: NodeView, written: object) -> object:
    if written is not ABSENT or view.op_type != "Transpose":
        return written
    rank = view.rank_at(0)
    return Unknown("perm") if rank is None else tuple(range(rank - 1, -1, -1))


_RULES = {
    "kernel_shape": _kernel_shape,
    "strides": _per_axis("strides", 1),
    "dilations": _per_axis("dilations", 1),
    "output_padding": _per_axis("output_padding", 0),
    "pads": _pads,
    "axis": _axis,
    "axes": _axes,
    "steps": _steps,
    "split": _split,
    "perm": _perm,
}
