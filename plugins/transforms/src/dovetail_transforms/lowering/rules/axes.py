"""Axes that became inputs go back to attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.required import shape_of

from dovetail_transforms.lowering.node_facts import attribute, constant, rank, required_constant
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


# Reductions that do nothing to single elements, so that without axes they may do nothing at all.
_PLAIN_REDUCTIONS = frozenset({"ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"})
_REDUCTIONS = _PLAIN_REDUCTIONS | {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"}


def _pattern(op, data, axes=None):
    return op.any_of(*sorted(_REDUCTIONS), "Squeeze", "Unsqueeze")(data, axes)


def _check(node: ir.Node, axes: ir.Value | None) -> str:
    if axes is None:
        return _noop_problem(node) if attribute(node, "noop_with_empty_axes", 0) else ""
    known = constant(axes)
    if known is None:
        return f"its axes ('{axes.name}') are not constant"
    if known.size:
        return ""
    if node.op_type not in _REDUCTIONS:
        return "its list of axes is empty"
    return _noop_problem(node) if attribute(node, "noop_with_empty_axes", 0) else ""


def _noop_problem(node: ir.Node) -> str:
    return "" if node.op_type in _PLAIN_REDUCTIONS else "it reduces no axis (noop_with_empty_axes)"


def _axes_to_attribute(op: Replacement, node: ir.Node, data: ir.Value, axes: ir.Value | None) -> ir.Value:
    known = constant(axes)
    listed = None if known is None or not known.size else known.reshape(-1).tolist()
    if listed is None and attribute(node, "noop_with_empty_axes", 0):
        return op.Identity(data)
    return op.like(node, data, axes=listed, noop_with_empty_axes=None)


def _dft_pattern(op, data, length=None, axis=None):
    return op.DFT(data, length, axis)


def _dft_check(data: ir.Value, axis: ir.Value | None) -> str:
    if rank(data) is None:
        return "the rank of its input is unknown"
    return "" if axis is None or constant(axis) is not None else "its axis is not constant"


def _dft_axis(op: Replacement, node: ir.Node, data: ir.Value, length: ir.Value | None, axis: ir.Value | None):
    chosen = -2 if axis is None else int(required_constant(axis))
    return op.like(node, data, length, axis=chosen % len(shape_of(data)))


RULES = (
    Rewrite("axes-to-attribute", _pattern, _axes_to_attribute, _check),
    Rewrite("dft-axis", _dft_pattern, _dft_axis, _dft_check),
)
