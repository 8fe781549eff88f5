"""Attention of tokens without padding, and the relative positions that encoders of text add to scores.

Tokens of all entries of a batch are concatenated, [tokens, hidden]. `token_offset`, [batch, length], begins with
the places that they have among padded entries of one length; `cumulative_sequence_length`, [batch + 1], has sums of the
lengths. Tokens are scattered to their places, attend to those of their entry, and are gathered again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of

from dovetail_transforms.decompositions.rules.scores import attend, from_heads, to_heads, where_allowed

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula

_FILLED = -10000.0


def _places(op: Formula, tokens: ir.Value) -> ir.Value:
    """Return the places of tokens among padded ones, [tokens, 1]."""
    import onnx_ir as ir

    flat = op.reshape(op.cast(op.required("token_offset"), ir.DataType.INT64), -1)
    return op.unsqueeze(op.slice(flat, 0, 0, op.size(tokens, 0)), 1)


def _padded(op: Formula, tokens: ir.Value, places: ir.Value) -> ir.Value:
    """Return tokens at their places, [batch, length, hidden], with zeros around them."""
    width = op.required_extent(tokens, 1, "last extent of its tokens")
    offsets = op.required("token_offset")
    batch, length = op.size(offsets, 0), op.size(offsets, 1)
    zeros = op.expand(op.number(0, tokens), op.Mul(op.as_value(batch), op.as_value(length)), width)
    padded = op.reshape(op.ScatterND(zeros, places, tokens), batch, length, width)
    return op.of_shape(padded, [batch, length, width])


def _attended(op: Formula, parts: list[ir.Value], filled: float) -> ir.Value:
    """Return the attention of tokens, [tokens, hidden], given queries, keys and values like that."""
    import onnx_ir as ir

    heads, places = op.attribute("num_heads"), _places(op, parts[0])
    q, k, v = (to_heads(op, _padded(op, part, places), heads) for part in parts)
    sums = op.cast(op.required("cumulative_sequence_length"), ir.DataType.INT64)
    lengths = op.Sub(op.slice(sums, 0, 1, 2**62), op.slice(sums, 0, 0, -1))
    allowed = op.Less(op.counting(op.size(k, 2)), op.reshape(lengths, -1, 1, 1, 1))
    mask = where_allowed(op, allowed, filled)
    found = attend(op, q, k, v, op.attribute("scale", 0.0), (mask, op.wide_or_none("attention_bias")))
    padded = from_heads(op, found.context)
    width = op.required_extent(parts[2], 1, "last extent of its values")
    return op.GatherND(op.reshape(padded, -1, width), places)


def _packed_attention(op: Formula) -> ir.Value:
    """Attention of projections of tokens without padding."""
    x, weights = op.required("input"), op.required("weights")
    product = op.Add(op.MatMul(op.wide(x), op.wide(weights)), op.wide(op.required("bias")))
    sizes = op.attribute("qkv_hidden_sizes", [])
    if not sizes:
        sizes = [op.required_extent(weights, 1, "last extent of its weights") // 3] * 3
    return op.cast(_attended(op, op.split(product, 1, sizes), _FILLED), dtype_of(x))


def _packed_multi_head_attention(op: Formula) -> ir.Value:
    """Attention of projected tokens without padding, which may be packed by heads."""
    query, key, value = op.required("query"), op.wide_or_none("key"), op.wide_or_none("value")
    wide, bias = op.wide(query), op.wide_or_none("bias")
    if key is None or value is None:
        sizes = [op.required_extent(query, axis, "shape of its queries") for axis in (1, 3)]
        parts = [op.reshape(op.slice(wide, 2, index, index + 1), 0, math.prod(sizes)) for index in range(3)]
    else:
        parts = [wide, key, value]
    if bias is not None:
        widths = [op.required_extent(part, 1, "last extent of its tokens") for part in parts]
        parts = [op.Add(part, piece) for part, piece in zip(parts, op.split(bias, 0, widths))]
    return op.cast(_attended(op, parts, op.attribute("mask_filter_value", _FILLED)), dtype_of(query))


def _relative_position_bias(op: Formula) -> ir.Value:
    """The bias of scores in T5, for a query and a key: the entry of a table for the logarithm of their distance.

    The table has the shape (buckets, heads), and its elements in the order of (heads, buckets): the schema says
    "COL-major".
    """
    import onnx_ir as ir

    table = op.required("bias_table")
    buckets, longest = op.required_extent(table, 0, "number of its buckets"), op.attribute("max_distance")
    by_head = op.reshape(table, -1, buckets)
    queries, keys = (op.reshape(op.required(f"{name}_length"), 1) for name in ("query", "key"))
    distance = op.Sub(op.unsqueeze(op.counting(keys), 0), op.unsqueeze(op.counting(queries), 1))
    zero, start = op.number(0, distance), None
    if op.attribute("is_bidirectional"):
        buckets //= 2
        start = op.Where(op.Greater(distance, zero), op.number(buckets, distance), zero)
        away = op.Abs(distance)
    else:
        away = op.Max(op.Neg(distance), zero)
    exact = buckets // 2
    real = op.cast(op.Max(away, op.number(1, away)), ir.DataType.FLOAT)
    factor = (buckets - exact) / math.log(longest / exact)
    far = op.scaled(op.Log(op.scaled(real, 1 / exact)), factor)
    far = op.Add(op.cast(far, ir.DataType.INT64), op.number(exact, away))
    far = op.Min(far, op.number(buckets - 1, away))
    bucket = op.plus_optional(op.Where(op.Less(away, op.number(exact, away)), away, far), start)
    return op.unsqueeze(op.Gather(by_head, bucket, axis=1), 0)


def _gated_relative_position_bias(op: Formula) -> ir.Value:
    """Relative positions times a gate that every query computes from itself."""
    layer, rel = op.required("query_layer"), op.wide(op.required("rel_pos"))
    op.refuse_if(op.input("token_offset") is not None, "its tokens are packed")
    heads, weight = op.attribute("num_heads"), op.required("weight")
    width = op.required_extent(weight, 1, "last extent of its weight")
    q = to_heads(op, op.Add(op.wide(layer), op.wide(op.required("query_bias"))), heads)
    gates = op.Add(op.MatMul(q, op.wide(weight)), op.wide(op.required("bias")))
    halves = op.total(op.reshape(gates, 0, 0, 0, 2, width // 2), 4, keepdims=0)
    update, reset = op.split(op.Sigmoid(halves), 3, [1, 1])
    inner = op.Sub(op.Mul(reset, op.wide(op.required("eco_a"))), op.number(1, reset))
    gate = op.Add(op.Mul(update, inner), op.number(2, reset))
    return op.cast(op.Mul(gate, rel), dtype_of(layer))


RULES: Mapping = {
    "com.microsoft.PackedAttention": _packed_attention,
    "com.microsoft.PackedMultiHeadAttention": _packed_multi_head_attention,
    "com.microsoft.RelativePositionBias": _relative_position_bias,
    "com.microsoft.GatedRelativePositionBias": _gated_relative_position_bias,
}
