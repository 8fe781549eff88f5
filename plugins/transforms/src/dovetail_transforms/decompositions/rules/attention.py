"""Attention with a head of keys for every head of queries: Attention, MultiHeadAttention, and that of decoders.

Caches are [batch, heads, length, size]. `present` is `past` with the new keys after it; where both are one buffer of
the greatest length, new keys are written at `past_sequence_length`, and rows after them stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import dtype_of

from dovetail_transforms.decompositions.rules.scores import (
    LOWEST,
    attend,
    causal,
    from_heads,
    padding_bias,
    to_heads,
    where_allowed,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula, Size

    Results = Sequence[ir.Value | None]


_FILLED = -10000.0  # the default of mask_filter_value


class _Cache(NamedTuple):
    """Keys or values of all calls up to this one.

    Attributes:
        all: Those to attend to.
        present: The output of the node.
        past: The number of those of earlier calls.
    """

    all: ir.Value
    present: ir.Value
    past: Size


def _extended(op: Formula, past: ir.Value | None, new: ir.Value, used: ir.Value | None) -> _Cache:
    """Return the keys of a cache and new ones, [batch, heads, length, size].

    Args:
        op: The formula.
        past: The cache; None if there is none.
        new: The new keys.
        used: The number of rows of the cache in use, if it is the buffer of `present`, too.
    """
    import onnx_ir as ir

    if past is None:
        return _Cache(new, new, 0)
    new = op.cast(new, dtype_of(past))
    if used is None:
        every = op.Concat(past, new, axis=2)
        return _Cache(every, every, op.size(past, 2))
    start = op.reshape(op.cast(used, ir.DataType.INT64), 1)
    every = op.Concat(op.slice(past, 2, 0, start), new, axis=2)
    rest = op.slice(past, 2, op.plus(start, op.size(new, 2)), 2**62)
    present = op.Concat(every, rest, axis=2)
    return _Cache(every, present if past.shape is None else op.of_shape(present, list(past.shape)), start)


def _with_bias(op: Formula, parts: Sequence[ir.Value], bias: ir.Value | None) -> list[ir.Value]:
    """Return queries, keys and values, [batch, length, hidden], with their parts of a bias."""
    if bias is None:
        return list(parts)
    hidden = op.required_extent(parts[0], 2, "last extent of its queries")
    whole = op.required_extent(bias, 0, "length of its bias")
    sizes = [hidden, hidden, whole - 2 * hidden]
    return [op.Add(part, piece) for part, piece in zip(parts, op.split(bias, 0, sizes))]


def _one_of(op: Formula, packed: ir.Value, index: int) -> ir.Value:
    """Return one part of [batch, length, heads, parts, size] as [batch, length, heads * size]."""
    return op.reshape(op.squeeze(op.slice(packed, 3, index, index + 1), 3), 0, 0, -1)


def _separate(op: Formula, heads: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return queries, keys and values with their bias, as heads, in the type to compute in."""
    query, key, value = op.required("query"), op.input("key"), op.input("value")
    bias, wide = op.wide_or_none("bias"), op.wide(query)
    if key is None:
        packed = op.rank(query) == 5
        parts = [_one_of(op, wide, index) for index in range(3)] if packed else _thirds(op, wide, heads)
    elif value is None:
        parts = [wide, *(_one_of(op, op.wide(key), index) for index in range(2))]
    elif op.rank(key) == 4:
        if bias is not None:  # keys of a cache have theirs already
            hidden = op.required_extent(query, 2, "last extent of its queries")
            wide = op.Add(wide, op.slice(bias, 0, 0, hidden))
        return to_heads(op, wide, heads), op.wide(key), op.wide(value)
    else:
        parts = [wide, op.wide(key), op.wide(value)]
    q, k, v = (to_heads(op, part, heads) for part in _with_bias(op, parts, bias))
    return q, k, v


def _thirds(op: Formula, packed: ir.Value, heads: int) -> list[ir.Value]:
    width = op.required_extent(packed, 2, "last extent of its queries")
    op.refuse_if(width % (3 * heads) != 0, "queries, keys and values of one input have different sizes")
    return op.split(packed, 2, [width // 3] * 3)


def _multi_head_attention(op: Formula) -> Results:
    """Attention of projected queries to projected keys, which may be packed, with masks of every rank and caches.

    Keys of four axes are those of a cache, as in cross attention: the bias is that of the queries alone. Keys that a
    mask excludes get `mask_filter_value`, and causal ones the lowest float32; a query that may see nothing then still
    weighs its keys.
    """
    query, heads = op.required("query"), op.attribute("num_heads")
    op.refuse_if(op.input("cache_indirection") is not None, "its cache has beams")
    dtype, (q, k, v) = dtype_of(query), _separate(op, heads)
    used = op.input("past_sequence_length")
    keys, values = _extended(op, op.input("past_key"), k, used), _extended(op, op.input("past_value"), v, used)
    return _attended(op, q, keys, values, dtype, "key_padding_mask", "qk")


def _attended(
    op: Formula, q: ir.Value, keys: _Cache, values: _Cache, dtype: ir.DataType, mask_name: str, scores_name: str
) -> Results:
    k, v = op.wide(keys.all), op.wide(values.all)
    queries, length = op.size(q, 2), op.size(k, 2)
    filled = op.attribute("mask_filter_value", _FILLED)
    mask = padding_bias(op, op.input(mask_name), q, keys.past, queries, length, filled)
    before = (
        where_allowed(op, causal(op, keys.past, queries, length, _is_square(op)), LOWEST) if _is_causal(op) else None
    )
    bias = op.wide_or_none("attention_bias") if op.has_input("attention_bias") else None
    found = attend(op, q, k, v, op.attribute("scale", 0.0), (mask, before, bias))
    result = op.cast(from_heads(op, found.context), dtype)
    present = [op.cast(cache.present, dtype) for cache in (keys, values)]
    read = bool(scores_name) and op.is_read(scores_name)
    return (result, *present, op.cast(found.scores, dtype) if read else None)


def _is_causal(op: Formula) -> bool:
    return op.node.op_type in ("Attention", "MultiHeadAttention", "QAttention") and op.attribute("unidirectional") == 1


def _is_square(op: Formula) -> bool:
    """Check whether there are as many new keys as queries."""
    if op.node.op_type != "MultiHeadAttention" or op.input("key") is None:
        return True
    lengths = [value.shape[axis] for value, axis in _lengths(op) if value.shape is not None]
    return len(lengths) == 2 and lengths[0] == lengths[1] and lengths[0] is not None


def _lengths(op: Formula) -> list[tuple[ir.Value, int]]:
    query, key = op.required("query"), op.required("key")
    return [(query, 1), (key, 2 if op.rank(key) == 4 else 1)]


def _projected(op: Formula, x: ir.Value, heads: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return queries, keys and values as heads, from the input times the weights of all three."""
    product = op.plus_optional(op.MatMul(x, op.wide(op.required("weights"))), op.wide_or_none("bias"))
    sizes = op.attribute("qkv_hidden_sizes", [])
    if not sizes:
        width = op.required_extent(op.required("weights"), 1, "last extent of its weights")
        sizes = [width // 3] * 3
    q, k, v = (to_heads(op, part, heads) for part in op.split(product, op.rank(product) - 1, sizes))
    return q, k, v


def self_attention(op: Formula, q: ir.Value, k: ir.Value, v: ir.Value, dtype: ir.DataType, mask_name: str) -> Results:
    """Return the attention of tokens to themselves and to a cache of keys and values in one tensor."""
    import onnx_ir as ir

    past, used = op.input("past"), None
    if op.attribute("past_present_share_buffer", 0):
        used = op.required("past_sequence_length")
        used = op.cast(used, ir.DataType.INT64)
    halves = [None, None] if past is None else [op.squeeze(part, 0) for part in op.split(past, 0, [1, 1])]
    keys, values = (_extended(op, half, new, used) for half, new in zip(halves, (k, v)))
    result, *present, _ = _attended(op, q, keys, values, dtype, mask_name, "")
    if not op.is_read("present"):
        return result, None
    return result, op.Concat(*(op.unsqueeze(one, 0) for one in present if one is not None), axis=0)


def _attention(op: Formula) -> Results:
    """Attention of projections of the input, with masks of every rank, a cache, and a bias of the scores."""
    op.refuse_if(bool(op.attribute("do_rotary", 0)), "it turns heads by angles that are not documented")
    x = op.required("input")
    return self_attention(op, *_projected(op, op.wide(x), op.attribute("num_heads")), dtype_of(x), "mask_index")


def _decoder_masked_multi_head_attention(op: Formula) -> Results:
    """Attention of one token to a cache and to itself, or to the keys of an encoder."""
    query, heads = op.required("query"), op.attribute("num_heads")
    op.refuse_if(op.input("cache_indirection") is not None, "its cache has beams")
    dtype, (q, k, v) = dtype_of(query), _separate(op, heads)
    used = op.required("past_sequence_length") if op.attribute("past_present_share_buffer", 0) else None
    keys, values = _extended(op, op.input("past_key"), k, used), _extended(op, op.input("past_value"), v, used)
    return _attended(op, q, keys, values, dtype, "mask_index", "qk")


RULES: Mapping = {
    "com.microsoft.Attention": _attention,
    "com.microsoft.MultiHeadAttention": _multi_head_attention,
    "com.microsoft.DecoderMaskedMultiHeadAttention": _decoder_masked_multi_head_attention,
}
