"""Attention and rotary embeddings as operators of ONNX Runtime, for models whose opset lacks those of ONNX.

Its providers for GPUs have kernels for them that read the scores from fast memory, and run one kernel instead of six.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.ir import dtype_of, shape_of

from dovetail_transforms.fusions.attention import (
    check_one_head_each,
    keys_with_heads_first,
    masked,
    scale_of,
    unmasked,
)
from dovetail_transforms.fusions.attention_inputs import (
    hides_with_infinity,
    prepared_mask,
    with_heads,
)
from dovetail_transforms.fusions.fusion import Fusion
from dovetail_transforms.fusions.rotary import check_rotary, half_of, has_rows_of, rotary_pattern, rows_of
from dovetail_transforms.lowering.node_facts import extents, rank
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

_DOMAIN = "com.microsoft"
_HEADS_BEHIND = [0, 2, 1, 3]


def _check_multi_head(
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    turn: ir.Node,
    softmax: ir.Node,
    mask: ir.Value | None = None,
    flat: ir.Node | None = None,
    unflat: ir.Node | None = None,
    guard: ir.Node | None = None,
    cast: ir.Node | None = None,
) -> str:
    if None in ((extents(value) or [None])[-1] for value in (q, v)):
        return "the size of its heads is unknown"
    if mask is not None and (extents(mask) or [None])[-1] == 1:
        return "its mask has one column for all keys"
    if mask is not None and guard is not None and hides_with_infinity(mask):
        return "it gives 0 for rows that its mask hides whole, and kernels may give NaN for them"
    return check_one_head_each(q, k, v, turn, softmax, mask, flat, unflat, guard, cast)


def _multi_head(
    op: Any,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    turn: ir.Node,
    mask: ir.Value | None = None,
    factor: ir.Value | None = None,
    divisor: ir.Value | None = None,
    root_of_queries: ir.Value | None = None,
    root_of_keys: ir.Value | None = None,
    guard: ir.Node | None = None,
) -> ir.Value:
    import onnx_ir as ir

    (_, heads, _, size_of_values), (_, _, _, size) = (extents(value) or [None] * 4 for value in (v, q))
    assert heads is not None and size is not None and size_of_values is not None, "the check asks for them"
    queries = op.Transpose(with_heads(op, q, heads), perm=_HEADS_BEHIND)
    queries = op.Reshape(queries, _shape(op, 0, 0, heads * size))
    inputs = [queries, keys_with_heads_first(op, k, turn), v]
    if mask is not None:
        bias = prepared_mask(op, mask, q, guard is not None)
        missing = 4 - (rank(mask) or 4)
        inputs += [None, None, op.Unsqueeze(bias, _shape(op, *range(missing))) if missing else bias]
    attended = op.make(
        "MultiHeadAttention",
        inputs,
        domain=_DOMAIN,
        num_heads=heads,
        scale=scale_of(factor, divisor, root_of_queries, root_of_keys),
    )
    shape = shape_of(q)
    attended.type, attended.shape = ir.TensorType(dtype_of(q)), ir.Shape([shape[0], shape[2], heads * size_of_values])
    return op.Transpose(op.Reshape(attended, _shape(op, 0, 0, heads, size_of_values)), perm=_HEADS_BEHIND)


def _shape(op: Any, *extents: int) -> ir.Value:
    import numpy as np
    import onnx_ir as ir

    return op.constant(ir.tensor(np.array(extents, np.int64)), "shape")


class FuseMultiHeadAttention(Fusion):
    """The scores of queries and keys, scaled and masked, their softmax, and its product with the values."""

    name, operator, domain, opset = "fuse-multi-head-attention", "MultiHeadAttention", _DOMAIN, 15
    general = False
    rewrites = tuple(
        Rewrite("fuse-multi-head-attention", pattern, _multi_head, _check_multi_head, commutes=True)
        for pattern in (masked, unmasked)
    )


def _contrib_rotary(op: Any, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    import onnx_ir as ir

    half = ((extents(x) or [0])[-1] or 0) // 2
    one_row = all(has_rows_of(value, x, one_for_all=True) for value in (cos, sin))
    tables = [
        op.Reshape(half_of(op, value, what) if one_row else rows_of(op, value, x, what), _shape(op, -1, half))
        for value, what in ((cos, "cos"), (sin, "sin"))
    ]
    # The first position, if those of all rows are the same; else a position of its own for each token of each row.
    positions = _shape(op, 0) if one_row else _positions(op, x)
    turned = op.make("RotaryEmbedding", [x, positions, *tables], domain=_DOMAIN)
    turned.type, turned.shape = ir.TensorType(dtype_of(x)), ir.Shape(shape_of(x))
    return turned


def _positions(op: Any, x: ir.Value) -> ir.Value:
    """Build the number of each token, counted over all rows, `[batch, sequence]`."""
    import numpy as np
    import onnx_ir as ir

    batch, length = op.Shape(x, start=0, end=1), op.Shape(x, start=2, end=3)
    count = op.Squeeze(op.Mul(batch, length), _shape(op, 0))
    zero, one = (op.constant(ir.tensor(np.int64(number)), what) for number, what in ((0, "zero"), (1, "one")))
    return op.Reshape(op.Range(zero, count, one), op.Concat(batch, length, axis=0))


class FuseContribRotary(Fusion):
    """The product with cosines, and that of the exchanged halves with sines, as ONNX Runtime's RotaryEmbedding."""

    name, operator, domain, opset = "fuse-contrib-rotary", "RotaryEmbedding", _DOMAIN, 15
    general = False
    rewrites = (Rewrite("fuse-contrib-rotary", rotary_pattern, _contrib_rotary, check_rotary, commutes=True),)
