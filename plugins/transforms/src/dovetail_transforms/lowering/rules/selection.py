"""Extreme elements: the last of equal ones, and those of narrow types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.required import dtype_of, input_of

from dovetail_transforms.lowering.node_facts import UNRELATED, attribute
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


_FLOAT, _INT32 = 1, 6  # onnx.TensorProto.DataType
_TO_THE_START = -(1 << 63)
_NARROW = ("BOOL", "INT8", "UINT8")


def _last_index(op: Replacement, node: ir.Node, x: ir.Value) -> ir.Value:
    """Find the first of equal elements in reverse order."""

    def integers(numbers: list[int] | int, what: str) -> ir.Value:
        import numpy as np
        import onnx_ir as ir

        return op.constant(ir.tensor(np.array(numbers, np.int64)), what)

    axis = attribute(node, "axis", 0)
    backwards = op.Slice(
        x,
        integers([-1], "starts"),
        integers([_TO_THE_START], "ends"),
        integers([axis], "axes"),
        integers([-1], "steps"),
    )
    extent = op.Gather(op.Shape(x), integers(axis, "axis"))
    last = op.Sub(extent, integers(1, "one"))
    return op.Sub(last, op.like(node, backwards, select_last_index=None))


def _narrow(node: ir.Node) -> str:
    dtype = input_of(node, 0).dtype
    return "" if dtype is not None and dtype.name in _NARROW else UNRELATED


def _pooled(op: Replacement, node: ir.Node, x: ir.Value) -> list[ir.Value]:
    """Select among the same elements in a type that holds all of them."""
    made = op.like(node, op.Cast(x, to=_FLOAT))
    first, *others = [made] if len(node.outputs) == 1 else made
    return [op.Cast(first, to=int(dtype_of(x))), *others]


def _reduced(op: Replacement, node: ir.Node, x: ir.Value, axes: ir.Value | None) -> ir.Value:
    """Reduce in 32 bits, and bound the result: of no elements it is the extreme of the type."""
    import numpy as np
    import onnx_ir as ir

    kind = dtype_of(x)
    dtype = kind.numpy()
    lowest, highest = (0, 1) if kind.name == "BOOL" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    made = op.like(node, op.Cast(x, to=_INT32), *([] if axes is None else [axes]))
    largest = node.op_type == "ReduceMax"
    bound = op.constant(ir.tensor(np.array(lowest if largest else highest, np.int32)), "bound")
    inside = op.Greater(made, bound) if largest else op.Less(made, bound)
    return op.Cast(op.Where(inside, made, bound), to=int(kind))


RULES = (
    Rewrite("last-index", lambda op, x: op.any_of("ArgMax", "ArgMin")(x), _last_index),
    Rewrite("narrow-pooling", lambda op, x: op.MaxPool(x), _pooled, _narrow),
    Rewrite(
        "narrow-reduction", lambda op, x, axes=None: op.any_of("ReduceMax", "ReduceMin")(x, axes), _reduced, _narrow
    ),
)
