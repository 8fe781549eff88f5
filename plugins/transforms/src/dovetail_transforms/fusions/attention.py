"""Scaled dot-product attention, as exporters of transformers write it.

Sources of the forms: the exporter of PyTorch for `scaled_dot_product_attention`, and models of transformers in ONNX
that compute it in single operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail_transforms.fusions.fusion import Fusion
from dovetail_transforms.lowering.node_facts import attribute, extents, rank
from dovetail_transforms.rewriting import Rewrite, number_of

if TYPE_CHECKING:
    import onnx_ir as ir


_TURNED = [0, 1, 3, 2]  # keys with the last two axes exchanged
_FROM_SEQUENCES = [0, 2, 3, 1]  # the same, of keys whose heads stand behind the sequence
_HEADS_FIRST = [0, 2, 1, 3]


def _weights(op: Any, q: Any, k: Any, mask: Any = None) -> Any:
    """Return the pattern of the softmax of the scores, with an added mask or without.

    PyTorch scales queries and keys by the root of the factor, and guards against rows that are masked whole.
    """
    turned = op.Transpose(k, called="turn")
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
    return op.either(softmax, op.Where(op.IsNaN(softmax), op.number(0), softmax))


def _scaled_before(op: Any, k: Any) -> Any:
    return op.Transpose(op.Mul(k, op.number(called="root_of_keys")), called="turn")


def _masked(op, q, k, v, mask):
    return op.MatMul(_weights(op, q, k, mask), v)


def _unmasked(op, q, k, v):
    return op.MatMul(_weights(op, q, k), v)


def _check(q: ir.Value, k: ir.Value, v: ir.Value, turn: ir.Node, softmax: ir.Node, mask: ir.Value | None = None) -> str:
    if any(rank(value) != 4 for value in (q, k, v)):
        return "queries, keys and values do not have four axes"
    if q.dtype is None or not q.dtype.is_floating_point() or {k.dtype, v.dtype} != {q.dtype}:
        return "queries, keys and values do not have one float type"
    if attribute(turn, "perm") not in (_TURNED, _FROM_SEQUENCES):
        return "the keys are turned in another way"
    if attribute(softmax, "axis", -1) not in (-1, 3):
        return "its softmax is not along the last axis"
    at_heads = 1 if attribute(turn, "perm") == _TURNED else 2
    heads = {(extents(value) or [])[axis] for value, axis in ((q, 1), (k, at_heads), (v, 1))}
    if None in heads or len(heads) > 1:
        return "queries, keys and values do not have one known number of heads"
    if mask is not None and (not 2 <= (rank(mask) or 0) <= 4 or mask.dtype != q.dtype):
        return "its mask has not two to four axes, or another type than its scores"
    return ""


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
) -> ir.Value:
    scale = 1.0
    for value in (factor, root_of_queries, root_of_keys):
        scale *= 1.0 if value is None else number_of(value) or 0.0
    if divisor is not None:
        scale /= number_of(divisor) or float("inf")
    keys = k if attribute(turn, "perm") == _TURNED else op.Transpose(k, perm=_HEADS_FIRST)
    return op.Attention(q, keys, v, *([] if mask is None else [mask]), scale=scale)


class FuseAttention(Fusion):
    """The scores of queries and keys, scaled and masked, their softmax, and its product with the values."""

    name, operator, opset = "fuse-attention", "Attention", 23
    rewrites = (
        Rewrite("fuse-attention", _masked, _attention, _check, commutes=True),
        Rewrite("fuse-attention", _unmasked, _attention, _check, commutes=True),
    )
