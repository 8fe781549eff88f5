"""GroupQueryAttention: queries that share heads of keys, with a cache whose entries have individual lengths.

What the operator computes, for entry b of the batch, with S new tokens (ONNX Runtime's schema, checked on its kernel):

- T = seqlens_k[b] + 1 tokens are cached after the call, Q of them are new: `query_seqlens[b]`, or min(S, T) without
  this input. P = T - Q were there before. In a first call T may be less than S: the tokens from T on are padding.
- Token s is at position P + s. It sees the positions up to its own, or the last `local_window_size` of them.
- `present` is as long as `past`, or as `total_sequence_length` if that is more. Row t holds position t. Rows from T on,
  and results of padding, are not defined: the kernel writes zeros into a cache of its own and leaves those of a shared
  one. Here such rows have the contents of `past`, or a copy of a new row.
- With `sliding_window_cache`, a cache is as long as `past`, and holds the last positions from its first row on.
- `position_ids` replaces the positions for the rotary embedding alone. In a first call, the kernel counts from the
  first element for the whole batch, as the schema says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import dtype_of

from dovetail_transforms.decompositions.rules.caches import (
    BEYOND,
    Rows,
    dequantized,
    plain_rows,
    quantized,
    updated,
    windowed_rows,
)
from dovetail_transforms.decompositions.rules.norms import root_mean_square
from dovetail_transforms.decompositions.rules.rotary import rotated
from dovetail_transforms.decompositions.rules.scores import LOWEST, attend, from_heads, repeated, where_allowed

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula, Size

    Results = Sequence[ir.Value | None]


class _Lengths(NamedTuple):
    """Numbers of tokens, int64 of [batch].

    Attributes:
        cached: Those in the cache after the call.
        past: Those before it.
        padded: Whether tokens after the new ones may be padding at positions that no table has.
    """

    cached: ir.Value
    past: ir.Value
    padded: bool


def _lengths(op: Formula, new: Size) -> _Lengths:
    import onnx_ir as ir

    dtype = ir.DataType.INT64
    cached = op.Add(op.reshape(_counted(op, op.required("seqlens_k")), -1), op.number(1, dtype))
    given = op.input("query_seqlens")
    if given is None:
        return _Lengths(cached, _less(op, cached, op.Min(op.as_value(new), cached)), False)
    return _Lengths(cached, _less(op, cached, op.reshape(_counted(op, given), -1)), True)


def _less(op: Formula, number: ir.Value, other: ir.Value) -> ir.Value:
    """Return a difference that is not negative, and says so."""
    return op.Max(op.Sub(number, other), op.number(0, number))


def _counted(op: Formula, number: ir.Value) -> ir.Value:
    """Return a number of tokens as int64, with bounds that let engines of 32 bits prove what is computed from it."""
    import onnx_ir as ir

    lowest, most = op.number(-1, ir.DataType.INT64), op.number(BEYOND, ir.DataType.INT64)
    return op.Min(op.Max(op.cast(number, ir.DataType.INT64), lowest), most)


def _projections(op: Formula) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return queries, keys and values of the new tokens, [batch, length, heads, size]."""
    heads, shared = op.attribute("num_heads"), op.attribute("kv_num_heads")
    query, key, value = op.required("query"), op.input("key"), op.input("value")
    whole = op.required_extent(query, 2, "last extent of its queries")
    if key is not None and value is not None:
        size = whole // heads
        return (
            op.reshape(query, 0, 0, heads, size),
            op.reshape(key, 0, 0, shared, size),
            op.reshape(value, 0, 0, shared, -1 if op.extent(value, 2) is None else _last(op, value) // shared),
        )
    packed = op.reshape(query, 0, 0, heads + 2 * shared, whole // (heads + 2 * shared))
    q, k, v = op.split(packed, 2, [heads, shared, shared])
    return q, k, v


def _last(op: Formula, x: ir.Value) -> int:
    return op.required_extent(x, 2, "last extent of its values")


def _normalized(op: Formula, x: ir.Value, name: str) -> ir.Value:
    """Return queries or keys after their RMS normalization, if the node has one."""
    weight = op.wide_or_none(f"{name}_norm_weight")
    if weight is None:
        return x
    epsilon = op.attribute(f"{name}_norm_epsilon", None) or op.attribute("qk_norm_epsilon")
    normal, _ = root_mean_square(op, op.wide(x), [-1], epsilon)
    return op.cast(op.Mul(normal, weight), dtype_of(x))


def _turned(op: Formula, parts: Sequence[ir.Value], lengths: _Lengths) -> list[ir.Value]:
    """Return queries and keys turned by the angles of their positions, if the node does that."""
    import onnx_ir as ir

    if not op.attribute("do_rotary", 0):
        return list(parts)
    cos, sin, positions = op.required("cos_cache"), op.required("sin_cache"), op.input("position_ids")
    steps = op.unsqueeze(op.counting(op.size(parts[0], 1)), 0)
    if positions is None:
        positions = op.Add(op.unsqueeze(lengths.past, 1), steps)
    elif not lengths.padded:
        first = op.Add(op.slice(op.slice(positions, 0, 0, 1), 1, 0, 1), steps)
        positions = first if op.input("past_key") is None else op.Where(_is_first(op, parts[0]), first, positions)
    if lengths.padded:
        last = op.Sub(op.scalar(op.as_value(op.size(cos, 0))), op.number(1, ir.DataType.INT64))
        positions = op.Min(positions, last)
    cos, sin = (op.unsqueeze(op.wide(op.Gather(table, positions, axis=0)), 2) for table in (cos, sin))
    interleaved = bool(op.attribute("rotary_interleaved", 0))
    return [op.cast(rotated(op, op.wide(part), cos, sin, interleaved), dtype_of(part)) for part in parts]


def _is_first(op: Formula, query: ir.Value) -> ir.Value:
    """Return whether there are as many new tokens as the longest entry has, which makes a call the first one."""
    return op.Equal(op.as_value(op.size(query, 1)), op.as_value(_total(op)))


def _allowed(op: Formula, lengths: _Lengths, new: Size, keys: ir.Value) -> ir.Value:
    """Return whether a query may see a key, [batch, 1, queries, keys].

    Args:
        op: The formula.
        lengths: The lengths of the batch.
        new: The number of queries.
        keys: The positions of the keys, [batch or 1, 1, 1, keys].
    """
    if not op.attribute("causal"):
        return op.Less(keys, op.reshape(lengths.cached, -1, 1, 1, 1))
    rows = op.Add(op.reshape(lengths.past, -1, 1, 1, 1), op.reshape(op.counting(new), 1, 1, -1, 1))
    window = op.attribute("local_window_size")
    if window <= 0:
        return op.LessOrEqual(keys, rows)
    # Positions may have more bits than engines compare exactly; zero and the window do not.
    ahead = op.Sub(rows, keys)
    return op.And(op.GreaterOrEqual(ahead, op.number(0, ahead)), op.Less(ahead, op.number(window, ahead)))


def _sink(op: Formula, dtype: ir.DataType) -> ir.Value | None:
    """Return the scores that share in the softmax and are dropped; 0 for a smooth softmax."""
    import numpy as np

    given = op.wide_or_none("head_sink")
    if given is not None:
        return given
    if op.attribute("smooth_softmax") != 1:
        return None
    return op.cast(op.tensor(np.zeros(1, np.float32), "sink"), dtype)


def _group_query_attention(op: Formula) -> Results:
    """Attention whose keys several queries share, with a cache, rotary embedding, windows, sinks and a bound of scores.

    The bound `softcap` acts before the bias and the masks. Scores before the softmax are 0 where a key is not allowed.
    """
    query = op.required("query")
    dtype, new = dtype_of(query), op.size(query, 1)
    lengths = _lengths(op, new)
    q, k, v = _projections(op)
    q, k = _turned(op, [_normalized(op, q, "q"), _normalized(op, k, "k")], lengths)
    q, k, v = (op.Transpose(part, perm=[0, 2, 1, 3]) for part in (q, k, v))
    rows = _rows(op, k, lengths)
    keys = updated(op, rows, op.input("past_key"), quantized(op, k, "k"))
    values = updated(op, rows, op.input("past_value"), quantized(op, v, "v"))
    times = op.attribute("num_heads") // op.attribute("kv_num_heads")
    k = repeated(op, dequantized(op, keys.attended, "k"), times)
    v = repeated(op, dequantized(op, values.attended, "v"), times)
    result, scores = _attended(op, op.wide(q), k, v, lengths, rows)
    result = op.of_shape(op.cast(result, dtype), [op.named(query, 0), op.named(query, 1), op.extent(result, 2)])
    return result, keys.present, values.present, None if scores is None else op.cast(scores, dtype)


def _rows(op: Formula, new: ir.Value, lengths: _Lengths) -> Rows:
    past = op.input("past_key")
    if not op.attribute("sliding_window_cache"):
        return plain_rows(op, past, new, lengths.past, _total(op))
    op.refuse_if(op.is_read("output_qk"), "it gives scores of a cache that drops rows, whose order is not documented")
    if past is None:
        op.refuse("its cache drops rows, and it has no cache before")
    return windowed_rows(op, past, new, lengths.past, lengths.cached, op.attribute("local_window_size"))


def _total(op: Formula) -> Size:
    """Return the number of positions that the longest entry of the batch has after the call."""
    total = op.required("total_sequence_length")
    known = op.known(total)
    return int(known.reshape(-1)[0]) if known is not None else op.reshape(_counted(op, total), 1)


def _bias(op: Formula, q: ir.Value, rows: Rows) -> ir.Value | None:
    """Return the bias of the rows that are attended to; its columns are positions."""
    bias = op.wide_or_none("attention_bias")
    if bias is None or rows.used is not None:
        return bias
    last = op.Sub(op.scalar(op.as_value(op.size(bias, 3))), op.number(1, rows.places))
    columns = op.unsqueeze(op.Min(rows.places, last), 1, 2)
    heads, queries, keys = op.size(bias, 1), op.size(bias, 2), op.size(rows.places, 1)
    whole = op.expand(bias, op.size(q, 0), 1, 1, 1)
    return op.GatherElements(whole, op.expand(columns, 1, heads, queries, keys), axis=3)


def _attended(
    op: Formula, q: ir.Value, k: ir.Value, v: ir.Value, lengths: _Lengths, rows: Rows
) -> tuple[ir.Value, ir.Value | None]:
    """Return the attention, [batch, queries, heads * size], and the scores that the node gives."""
    import onnx_ir as ir

    dtype = ir.DataType.FLOAT
    allowed = _allowed(op, lengths, op.size(q, 2), op.unsqueeze(rows.places, 1, 2))
    mask, bias = where_allowed(op, allowed, LOWEST), _bias(op, q, rows)
    softcap, sink = op.attribute("softcap", 0.0), _sink(op, dtype)
    found = attend(op, q, k, v, op.attribute("scale", 0.0), (bias,), mask, softcap, sink)
    if not op.is_read("output_qk"):
        return from_heads(op, found.context), None
    before = op.attribute("qk_output") == 1
    return from_heads(op, found.context), op.Where(
        allowed, found.scores, op.number(0, dtype)
    ) if before else found.weights


RULES: Mapping = {"com.microsoft.GroupQueryAttention": _group_query_attention}
