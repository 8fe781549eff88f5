"""Rotary position embeddings as one operator, of ONNX or of ONNX Runtime.

ONNX Runtime's own operator is for models whose opset lacks that of ONNX. It reads tables by position; where the model
computes cosines and sines, these are the tables, and every token of every row has a position of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.ir import dtype_of, shape_of

from dovetail_transforms.fusions.fusion import Fusion
from dovetail_transforms.fusions.rotary_halves import check_rotary, half_of, has_rows_of, rotary_pattern, rows_of
from dovetail_transforms.fusions.rotary_pairs import (
    check_paired_rotary,
    paired_rotary_pattern,
    paired_tables,
)
from dovetail_transforms.lowering.node_facts import extents
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir


_DOMAIN = "com.microsoft"
_HEADS_FIRST = [0, 2, 1, 3]


def _rotary(op: Any, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    return op.RotaryEmbedding(x, rows_of(op, cos, x, "cos"), rows_of(op, sin, x, "sin"))


def _paired_rotary(op: Any, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    tables, heads = paired_tables(op, x, cos, sin)
    if heads == 1:
        return op.RotaryEmbedding(x, *tables, interleaved=1)
    turned = op.RotaryEmbedding(op.Transpose(x, perm=_HEADS_FIRST), *tables, interleaved=1)
    return op.Transpose(turned, perm=_HEADS_FIRST)


class FuseRotary(Fusion):
    """The product with cosines, and that of the exchanged halves or neighbors with sines, as RotaryEmbedding."""

    name, operator, opset = "fuse-rotary", "RotaryEmbedding", 23
    rewrites = (
        Rewrite("fuse-rotary", rotary_pattern, _rotary, check_rotary, commutes=True),
        Rewrite("fuse-rotary", paired_rotary_pattern, _paired_rotary, check_paired_rotary, commutes=True),
    )


def _contrib_rotary(op: Any, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    half = ((extents(x) or [0])[-1] or 0) // 2
    one_row = all(has_rows_of(value, x, one_for_all=True) for value in (cos, sin))
    tables = [
        op.Reshape(half_of(op, value, what) if one_row else rows_of(op, value, x, what), _shape(op, -1, half))
        for value, what in ((cos, "cos"), (sin, "sin"))
    ]
    # The first position, if those of all rows are the same; else a position of its own for each token of each row.
    positions = _shape(op, 0) if one_row else _positions(op, x, 2)
    return _typed(op.make("RotaryEmbedding", [x, positions, *tables], domain=_DOMAIN), x, shape_of(x))


def _contrib_paired_rotary(op: Any, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    size = (extents(x) or [0])[-1] or 0
    rows, heads = paired_tables(op, x, cos, sin)
    tables = [op.Reshape(one, _shape(op, -1, size // 2)) for one in rows]
    # Heads after the positions are merged with their size, which the operator reads as well.
    flat = x if heads == 1 else _typed(op.Reshape(x, _shape(op, 0, 0, -1)), x, [*shape_of(x)[:2], None])
    inputs = [flat, _positions(op, x, 3 - heads), *tables]
    turned = _typed(op.make("RotaryEmbedding", inputs, domain=_DOMAIN, interleaved=1), flat, shape_of(flat))
    return turned if heads == 1 else op.Reshape(turned, _shape(op, 0, 0, -1, size))


def _typed(made: ir.Value, like: ir.Value, shape: Any) -> ir.Value:
    import onnx_ir as ir

    made.type, made.shape = ir.TensorType(dtype_of(like)), ir.Shape(shape)
    return made


def _shape(op: Any, *extents: int) -> ir.Value:
    import numpy as np
    import onnx_ir as ir

    return op.constant(ir.tensor(np.array(extents, np.int64)), "shape")


def _positions(op: Any, x: ir.Value, axis: int) -> ir.Value:
    """Build the number of each token, counted over all rows, `[batch, sequence]`; the sequence is at an axis of `x`."""
    import numpy as np
    import onnx_ir as ir

    batch, length = op.Shape(x, start=0, end=1), op.Shape(x, start=axis, end=axis + 1)
    count = op.Squeeze(op.Mul(batch, length), _shape(op, 0))
    zero, one = (op.constant(ir.tensor(np.int64(number)), what) for number, what in ((0, "zero"), (1, "one")))
    return op.Reshape(op.Range(zero, count, one), op.Concat(batch, length, axis=0))


class FuseContribRotary(Fusion):
    """The product with cosines, and that of the exchanged halves or neighbors with sines, as RotaryEmbedding."""

    name, operator, domain, opset = "fuse-contrib-rotary", "RotaryEmbedding", _DOMAIN, 15
    general = False
    rewrites = (
        Rewrite("fuse-contrib-rotary", rotary_pattern, _contrib_rotary, check_rotary, commutes=True),
        Rewrite(
            "fuse-contrib-rotary", paired_rotary_pattern, _contrib_paired_rotary, check_paired_rotary, commutes=True
        ),
    )
