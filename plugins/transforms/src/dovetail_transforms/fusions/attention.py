"""Scaled dot-product attention, as exporters of transformers write it.

Sources of the forms: the exporter of PyTorch for `scaled_dot_product_attention`, and models of transformers in ONNX
that compute it in single operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from dovetail.ir import input_of

from dovetail_transforms.fusions.attention_inputs import (
    is_computed_extent,
    is_same_extent,
    prepared_mask,
    read_shape_of,
    shared_heads,
    why_not_hidden,
    with_heads,
)
from dovetail_transforms.fusions.fusion import Fusion
from dovetail_transforms.lowering.node_facts import attribute, extents, rank
from dovetail_transforms.rewriting import Rewrite, number_of

if TYPE_CHECKING:
    import onnx_ir as ir


_TURNED = [0, 1, 3, 2]  # keys with the last two axes exchanged
_FROM_SEQUENCES = [0, 2, 3, 1]  # the same, of keys whose heads come after the sequence
_HEADS_FIRST = [0, 2, 1, 3]
_FLAT = [0, 2, 1]  # the same, of keys whose batch and heads are one axis


def _weights(op: Any, q: Any, k: Any, mask: Any = None) -> Any:
    """Return the pattern of the softmax of the scores, with an added mask or without.

    PyTorch scales queries and keys by the root of the factor, and guards against rows that are masked whole.
    """
    turned = op.either(
        op.Transpose(k, called="turn"),
        op.Reshape(op.Transpose(op.Reshape(k, ..., called="flat"), called="turn"), ..., called="unflat"),
    )
    plain = op.MatMul(q, turned)
    scores = op.either(
        op.Mul(plain, op.number(called="factor")),
        op.Div(plain, op.number(called="divisor")),
        op.MatMul(
            op.Mul(q, op.number(called="root_of_queries")),
            op.either(op.Mul(turned, op.number(called="root_of_keys")), _scaled_before(op, k)),
        ),
        op.MatMul(op.Mul(q, op.number(called="factor")), turned),
        op.MatMul(op.Div(q, op.number(called="divisor")), turned),
        plain,
    )
    softmax = op.Softmax(scores if mask is None else op.Add(scores, mask), called="softmax")
    guarded = op.Where(op.IsNaN(softmax), op.number(0), softmax, called="guard")
    return op.either(softmax, guarded, op.Cast(softmax, called="cast"))


def _scaled_before(op: Any, k: Any) -> Any:
    return op.Transpose(op.Mul(k, op.number(called="root_of_keys")), called="turn")


def masked(op, q, k, v, mask):
    """Return the pattern of attention with a mask that is added to the scores."""
    return op.MatMul(_weights(op, q, k, mask), v)


def unmasked(op, q, k, v):
    """Return the pattern of attention without a mask."""
    return op.MatMul(_weights(op, q, k), v)


def _is_turned(k: ir.Value, turn: ir.Node, flat: ir.Node | None, unflat: ir.Node | None) -> bool:
    """Check whether the last two axes of the keys are exchanged, and nothing else."""
    order = attribute(turn, "perm")
    if flat is None or unflat is None:
        return order in (_TURNED, _FROM_SEQUENCES)
    merged, apart = flat.outputs[0], unflat.outputs[0]

    def keeps(axis: int) -> bool:
        return is_same_extent(merged, axis - 1, k, axis) or is_computed_extent(input_of(flat, 1), axis - 1, k, axis)

    return (
        (order, rank(merged), rank(apart)) == (_FLAT, 3, 4)
        and is_same_extent(apart, 1, k, 1)
        and all(map(keeps, (2, 3)))
        and all(is_same_extent(apart, axis, merged, 4 - axis) for axis in (2, 3))
    )


def _check(
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
    if any(rank(value) != 4 for value in (q, k, v)):
        return "queries, keys and values do not have four axes"
    if q.dtype is None or not q.dtype.is_floating_point() or {k.dtype, v.dtype} != {q.dtype}:
        return "queries, keys and values do not have one float type"
    if cast is not None and cast.inputs[0] is not None and cast.inputs[0].dtype != q.dtype:
        return "its softmax is in another type"
    if not _is_turned(k, turn, flat, unflat):
        return "the keys are turned in another way"
    if attribute(softmax, "axis", -1) not in (-1, 3):
        return "its softmax is not along the last axis"
    at_heads = 2 if attribute(turn, "perm") == _FROM_SEQUENCES else 1
    heads = {(extents(value) or [])[axis] for value, axis in ((k, at_heads), (v, 1))}
    if None in heads or len(heads) > 1:
        return "keys and values do not have one known number of heads"
    if mask is not None and (not 2 <= (rank(mask) or 0) <= 4 or mask.dtype != q.dtype):
        return "its mask has not two to four axes, or another type than its scores"
    return why_not_hidden(mask, guard is not None) if mask is not None else ""


def _checking(refusal: Callable[[ir.Value, ir.Value, ir.Value, ir.Node], str]) -> Callable[..., str]:
    """Return `_check` with a condition on the heads before it; its parameters stay those of the pattern."""

    @wraps(_check)
    def check(q: ir.Value, k: ir.Value, v: ir.Value, turn: ir.Node, *others: Any, **named: Any) -> str:
        return refusal(q, k, v, turn) or _check(q, k, v, turn, *others, **named)

    return check


@_checking
def _check_equal(q: ir.Value, k: ir.Value, v: ir.Value, turn: ir.Node) -> str:
    if (extents(q) or [None] * 2)[1] != (extents(v) or [None] * 2)[1]:
        return "queries and values do not have one known number of heads"
    return ""


@_checking
def check_one_head_each(q: ir.Value, k: ir.Value, v: ir.Value, turn: ir.Node) -> str:
    """Return why no operator computes attention with a head of keys for each of the queries; empty if one does."""
    heads = (extents(q) or [None] * 2)[1]
    if heads not in (None, 1, (extents(v) or [None] * 2)[1]):
        return "queries have other heads than values"
    return ""


@_checking
def _check_shared(q: ir.Value, k: ir.Value, v: ir.Value, turn: ir.Node) -> str:
    shared = [shared_heads(value) for value in (k, v)]
    if attribute(turn, "perm") == _FROM_SEQUENCES or None in shared:
        return "no heads of keys and values are repeated as exporters do that"
    return ""


def scale_of(
    factor: ir.Value | None, divisor: ir.Value | None, root_of_queries: ir.Value | None, root_of_keys: ir.Value | None
) -> float:
    """Return the factor of the scores, of the constants that a pattern found."""
    scale = 1.0
    for value in (factor, root_of_queries, root_of_keys):
        scale *= 1.0 if value is None else number_of(value) or 0.0
    return scale if divisor is None else scale / (number_of(divisor) or float("inf"))


def keys_with_heads_first(op: Any, k: ir.Value, turn: ir.Node) -> ir.Value:
    """Build keys as `[batch, heads, sequence, size]`."""
    return op.Transpose(k, perm=_HEADS_FIRST) if attribute(turn, "perm") == _FROM_SEQUENCES else k


def _attention(
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
    scale = scale_of(factor, divisor, root_of_queries, root_of_keys)
    masks = [] if mask is None else [prepared_mask(op, mask, q, guard is not None)]
    keys_of, values_of = shared_heads(k), shared_heads(v)
    if keys_of is not None and values_of is not None:
        read_shape_of(keys_of.value, k)
        read_shape_of(values_of.value, v)
        q = with_heads(op, q, (extents(v) or [0, 0])[1] or 0)
        return op.Attention(q, keys_of.value, values_of.value, *masks, scale=scale)
    return op.Attention(q, keys_with_heads_first(op, k, turn), v, *masks, scale=scale)


class FuseAttention(Fusion):
    """The scores of queries and keys, scaled and masked, their softmax, and its product with the values."""

    name, operator, opset = "fuse-attention", "Attention", 23
    rewrites = tuple(
        Rewrite("fuse-attention", pattern, _attention, check, commutes=True)
        for pattern in (masked, unmasked)
        for check in (_check_shared, _check_equal)
    )


class FuseGroupedAttention(Fusion):
    """Attention whose keys and values several queries share, without the copies that repeat them.

    On ONNX Runtime's CPU kernels this halves a decoded token's attention, where Attention alone gains nothing.
    """

    name, operator, opset = "fuse-grouped-attention", "Attention", 23
    general = False  # fuse-attention makes these, too
    rewrites = tuple(
        Rewrite("fuse-grouped-attention", pattern, _attention, _check_shared, commutes=True)
        for pattern in (masked, unmasked)
    )
