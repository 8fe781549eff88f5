"""Shapes, axes and sizes: inputs converted back to attributes, and lists to single numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.ir import shape_of

from dovetail_transforms.lowering.node_facts import attribute, closed, constant, extents, rank, required_constant
from dovetail_transforms.lowering.rules.elementwise import integers, scalar, untyped
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


_TO_THE_END = (1 << 63) - 1
_LARGEST_MASK = 1 << 20  # elements


def _slice_of_shape(op: Replacement, node: ir.Node, x: ir.Value) -> ir.Value:
    start, end = attribute(node, "start", 0), attribute(node, "end", _TO_THE_END)
    return op.Slice(op.Shape(x), integers(op, [start], "start"), integers(op, [end], "end"))


def _no_zeros(x: ir.Value, shape: ir.Value) -> str:
    known, given = constant(shape), extents(x)
    if known is None and given is not None and all(given):
        return ""  # a tensor with elements has no zero extents
    if known is None:
        return f"its shape ('{shape.name}') is not constant, and a zero in it would be an extent (allowzero)"
    return "" if known.all() else "its shape has an extent of zero (allowzero)"


def _reshape(op: Replacement, node: ir.Node, x: ir.Value, shape: ir.Value) -> ir.Value:
    return op.like(node, x, shape, allowzero=None)


def _trilu(op: Replacement, node: ir.Node, x: ir.Value, k: ir.Value | None) -> ir.Value:
    keep = _constant_mask(op, node, x, k)
    return op.Where(_mask(op, node, x, k) if keep is None else keep, x, scalar(op, 0, x, "zero"))


def _constant_mask(op: Replacement, node: ir.Node, x: ir.Value, k: ir.Value | None) -> ir.Value | None:
    import numpy as np
    import onnx_ir as ir

    last = closed((extents(x) or [None])[-2:])
    offset = 0 if k is None else constant(k)
    if last is None or offset is None or math.prod(last) > _LARGEST_MASK:
        return None
    triangle = np.triu if attribute(node, "upper", 1) else np.tril
    return op.constant(ir.tensor(triangle(np.ones(last, bool), int(offset))), "mask")


def _mask(op: Replacement, node: ir.Node, x: ir.Value, k: ir.Value | None) -> ir.Value:
    shape, zero, one = op.Shape(x), integers(op, 0, "first"), integers(op, 1, "step")
    rows, columns = (op.Range(zero, op.Gather(shape, integers(op, axis, "axis")), one) for axis in (-2, -1))
    if k is not None:
        rows = op.Add(rows, k)
    rows = op.Unsqueeze(rows, integers(op, [1], "axes"))
    return op.Not(op.Less(columns, rows) if attribute(node, "upper", 1) else op.Greater(columns, rows))


# Reductions that are the identity on single elements, and so may be no-ops without axes.
_PLAIN_REDUCTIONS = frozenset({"ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"})
_REDUCTIONS = _PLAIN_REDUCTIONS | {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"}


def _axes_pattern(op, data, axes=None):
    return op.any_of(*sorted(_REDUCTIONS), "Squeeze", "Unsqueeze")(data, axes)


def _constant_axes(node: ir.Node, axes: ir.Value | None) -> str:
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


def _one_form(node: ir.Node) -> str:
    import onnx_ir as ir

    return "" if ir.convenience.get_const_tensor(node.outputs[0]) is not None else "its value is not known"


def _constant_tensor(op: Replacement, node: ir.Node) -> ir.Value:
    import onnx_ir as ir

    return op.Constant(value=ir.convenience.get_const_tensor(node.outputs[0]))


def _split_pattern(op, data, sizes=None):
    return op.Split(data, sizes)


def _constant_sizes(sizes: ir.Value | None) -> str:
    return "" if sizes is None or constant(sizes) is not None else f"its sizes ('{sizes.name}') are not constant"


def _split_to_attribute(op: Replacement, node: ir.Node, data: ir.Value, sizes: ir.Value | None):
    return op.like(node, data, split=None if sizes is None else required_constant(sizes).tolist())


def _parts(node: ir.Node, data: ir.Value) -> list[int] | None:
    """Return the sizes of the parts: equal ones, with the remainder last. None if the extent is open."""
    known, count = extents(data), attribute(node, "num_outputs", len(node.outputs))
    extent = None if known is None else known[attribute(node, "axis", 0)]
    if extent is None:
        return None
    size = -(-extent // count)
    return [*[size] * (count - 1), extent - size * (count - 1)]


def _known_extent(node: ir.Node, data: ir.Value) -> str:
    found = _parts(node, data)
    if found is None:
        return f"the extent that it splits into {attribute(node, 'num_outputs')} parts is open"
    return "" if min(found) >= 0 else "it has more parts than elements"


def _split_sizes(op: Replacement, node: ir.Node, data: ir.Value):
    import numpy as np
    import onnx_ir as ir

    sizes = op.constant(ir.tensor(np.array(_parts(node, data), np.int64)), "sizes")
    return op.like(node, data, sizes, num_outputs=None)


RULES = (
    Rewrite("slice-of-shape", lambda op, x: op.Shape(x), _slice_of_shape),
    Rewrite("reshape-without-zeros", lambda op, x, shape: op.Reshape(x, shape), _reshape, _no_zeros),
    Rewrite("trilu", lambda op, x, k=None: op.Trilu(x, k), _trilu, untyped),
    Rewrite("axes-to-attribute", _axes_pattern, _axes_to_attribute, _constant_axes),
    Rewrite("dft-axis", _dft_pattern, _dft_axis, _dft_check),
    Rewrite("constant-tensor", lambda op: op.Constant(), _constant_tensor, _one_form),
    Rewrite("split-to-attribute", _split_pattern, _split_to_attribute, _constant_sizes),
    Rewrite("split-sizes", _split_pattern, _split_sizes, _known_extent),
)
