"""Shapes: parts of a shape, reshaping, and triangles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail_transforms.lowering.node_facts import attribute, closed, constant, extents
from dovetail_transforms.lowering.rules.activations import scalar
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


_TO_THE_END = (1 << 63) - 1
_LARGEST_MASK = 1 << 20  # elements


def _vector(op: Replacement, numbers: list[int], what: str) -> ir.Value:
    import numpy as np
    import onnx_ir as ir

    return op.constant(ir.tensor(np.array(numbers, np.int64)), what)


def _slice_of_shape(op: Replacement, node: ir.Node, x: ir.Value) -> ir.Value:
    start, end = attribute(node, "start", 0), attribute(node, "end", _TO_THE_END)
    return op.Slice(op.Shape(x), _vector(op, [start], "start"), _vector(op, [end], "end"))


def _no_zeros(x: ir.Value, shape: ir.Value) -> str:
    known, given = constant(shape), extents(x)
    if known is None and given is not None and all(given):
        return ""  # elements that are there need extents that are not zero
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
    shape, zero, one = op.Shape(x), _integer(op, 0, "first"), _integer(op, 1, "step")
    rows, columns = (op.Range(zero, op.Gather(shape, _integer(op, axis, "axis")), one) for axis in (-2, -1))
    if k is not None:
        rows = op.Add(rows, k)
    rows = op.Unsqueeze(rows, _vector(op, [1], "axes"))
    return op.Not(op.Less(columns, rows) if attribute(node, "upper", 1) else op.Greater(columns, rows))


def _integer(op: Replacement, number: int, what: str) -> ir.Value:
    """Make a constant scalar of type int64."""
    import numpy as np
    import onnx_ir as ir

    return op.constant(ir.tensor(np.array(number, np.int64)), what)


def _typed(x: ir.Value) -> str:
    return "" if x.dtype is not None else "the type of its input is unknown"


RULES = (
    Rewrite("slice-of-shape", lambda op, x: op.Shape(x), _slice_of_shape),
    Rewrite("reshape-without-zeros", lambda op, x, shape: op.Reshape(x, shape), _reshape, _no_zeros),
    Rewrite("trilu", lambda op, x, k=None: op.Trilu(x, k), _trilu, _typed),
)
