"""Operators that ONNX has as well: ONNX Runtime had them first, or with inputs of other types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula


def _trilu(op: Formula) -> ir.Value:
    """Trilu of ONNX."""
    k = op.input("k")
    return op.Trilu(op.required("X"), *([] if k is None else [k]), upper=op.attribute("upper"))


def _pad(op: Formula) -> ir.Value:
    """Pad of ONNX, with the paddings in one row and the value without axes."""
    value = op.input("value")
    pads = op.reshape(op.required("pads"), -1)
    return op.Pad(op.required("data"), pads, *([] if value is None else [op.scalar(value)]), mode=op.attribute("mode"))


def _expand_dims(op: Formula) -> ir.Value:
    """Unsqueeze of ONNX at a constant axis."""
    axis = op.known(op.required("axis"))
    if axis is None:
        op.refuse("its axis is not constant")
    return op.unsqueeze(op.required("X"), int(axis.reshape(())))


def _range(op: Formula) -> ir.Value:
    """Range of ONNX, with a step of 1 without one."""
    start, limit, delta = op.required("start"), op.required("limit"), op.input("delta")
    step = op.number(1, start) if delta is None else op.scalar(delta)
    return op.Range(op.scalar(start), op.scalar(limit), step)


def _gather_nd(op: Formula) -> ir.Value:
    """GatherND of ONNX, with indices in 64 bits."""
    import onnx_ir as ir

    return op.GatherND(op.required("data"), op.cast(op.required("indices"), ir.DataType.INT64))


RULES: Mapping = {
    "com.microsoft.Trilu": _trilu,
    "com.microsoft.Pad": _pad,
    "com.microsoft.ExpandDims": _expand_dims,
    "com.microsoft.Range": _range,
    "com.microsoft.GatherND": _gather_nd,
}
