"""Attention as an operator of ONNX Runtime, for models whose opset lacks that of ONNX.

Its providers for GPUs have kernels for it that read the scores from fast memory, and run one kernel instead of six.
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
    hides_less_than,
    hides_with_infinity,
    prepared_mask,
    with_heads,
)
from dovetail_transforms.fusions.fusion import Fusion
from dovetail_transforms.lowering.node_facts import extents, rank
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

_DOMAIN = "com.microsoft"
_HEADS_BEHIND = [0, 2, 1, 3]
_LOWEST_HALF = -65504.0  # the lowest number of float16, in which the kernel may read the mask


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
    hidden = _hidden_rows(op, mask) if mask is not None and not hides_less_than(mask, _LOWEST_HALF) else None
    # Scores of 0 make a hidden row the average that it is as written, with a mask that float16 can hold.
    queries = with_heads(op, q, heads)
    queries = queries if hidden is None else op.Where(hidden, _number(op, q, 0.0), queries)
    queries = op.Reshape(op.Transpose(queries, perm=_HEADS_BEHIND), _shape(op, 0, 0, heads * size))
    inputs = [queries, keys_with_heads_first(op, k, turn), v]
    if mask is not None:
        bias = prepared_mask(op, mask, q, guarded=False, lowest_kept=_LOWEST_HALF)
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
    result = op.Transpose(op.Reshape(attended, _shape(op, 0, 0, heads, size_of_values)), perm=_HEADS_BEHIND)
    is_zero = mask is not None and guard is not None and hides_with_infinity(mask)
    return op.Where(hidden, _number(op, q, 0.0), result) if is_zero else result


def _hidden_rows(op: Any, mask: ir.Value) -> ir.Value:
    """Build whether a mask hides all keys of a query, with a last axis of one."""
    highest = op.ReduceMax(mask, _shape(op, -1)) if op.version >= 18 else op.ReduceMax(mask, axes=[-1])
    return op.LessOrEqual(highest, _number(op, mask, _LOWEST_HALF))


def _number(op: Any, like: ir.Value, number: float) -> ir.Value:
    import numpy as np
    import onnx_ir as ir

    return op.constant(ir.tensor(np.array(number, dtype_of(like).numpy())), "number")


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
