"""Scaled dot products of heads, and the masks that ONNX Runtime's attention operators share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula, Size


LOWEST = -3.4028234663852886e38
"""The lowest float32: what kernels give to keys that a causal query must not see."""


class Attended(NamedTuple):
    """What an attention computes.

    Attributes:
        context: Weighted values, [batch, heads, queries, size].
        scores: Scores with their biases, before the mask and the softmax.
        weights: Their softmax.
    """

    context: ir.Value
    scores: ir.Value
    weights: ir.Value


def attend(
    op: Formula,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    scale: float,
    biases: tuple[ir.Value | None, ...] = (),
    mask: ir.Value | None = None,
    softcap: float = 0.0,
    sink: ir.Value | None = None,
) -> Attended:
    """Return the attention of queries to keys; all are [batch, heads, length, size], in the type to compute in.

    Args:
        op: The formula.
        q: Queries.
        k: Keys.
        v: Values.
        scale: The factor of the products; 0 for one over the root of the size of a head.
        biases: Biases that are added to the scores.
        mask: The mask that is added to them after that.
        softcap: The bound of the scores before the biases; 0 for none.
        sink: Scores that take part in the softmax and are dropped, one per head or one for all.
    """
    scale = scale or 1 / math.sqrt(op.required_extent(q, 3, "size of a head"))
    scores = op.scaled(op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])), scale)
    if softcap:
        scores = op.scaled(op.Tanh(op.scaled(scores, 1 / softcap)), softcap)
    for bias in biases:
        scores = op.plus_optional(scores, bias)
    masked = op.plus_optional(scores, mask)
    if sink is None:
        weights = op.Softmax(masked, axis=-1)
    else:
        column = op.expand(op.reshape(sink, 1, -1, 1, 1), op.size(q, 0), op.size(q, 1), op.size(q, 2), 1)
        length = op.size(k, 2)
        weights = op.slice(op.Softmax(op.Concat(masked, column, axis=3), axis=-1), 3, 0, length)
    return Attended(op.MatMul(weights, v), scores, weights)


def to_heads(op: Formula, x: ir.Value, heads: int) -> ir.Value:
    """Return [batch, length, heads * size] as [batch, heads, length, size]."""
    return op.Transpose(op.reshape(x, 0, 0, heads, _head_size(op, x, heads)), perm=[0, 2, 1, 3])


def _head_size(op: Formula, x: ir.Value, heads: int) -> int:
    hidden = op.extent(x, 2)
    return -1 if hidden is None else hidden // heads


def from_heads(op: Formula, x: ir.Value) -> ir.Value:
    """Return [batch, heads, length, size] as [batch, length, heads * size]."""
    heads, size = op.extent(x, 1), op.extent(x, 3)
    width = -1 if heads is None or size is None else heads * size
    return op.reshape(op.Transpose(x, perm=[0, 2, 1, 3]), 0, 0, width)


def repeated(op: Formula, x: ir.Value, times: int) -> ir.Value:
    """Return [batch, heads, length, size] with every head repeated, for the queries that share it."""
    if times == 1:
        return x
    heads = op.required_extent(x, 1, "number of heads")
    size = op.required_extent(x, 3, "size of a head")
    wide = op.expand(op.unsqueeze(x, 2), 1, 1, times, 1, 1)
    return op.Reshape(wide, op.shape([0, heads * times, -1, size]))


def where_allowed(op: Formula, allowed: ir.Value, filled: float) -> ir.Value:
    """Return the bias of scores: 0 where a key is allowed, else `filled`."""
    import onnx_ir as ir

    dtype = ir.DataType.FLOAT
    return op.Where(allowed, op.number(0, dtype), op.number(filled, dtype))


def causal(op: Formula, past: Size, queries: Size, keys: Size, square: bool) -> ir.Value:
    """Return whether a query may see a key, [queries, keys]: its own position and those before.

    Args:
        op: The formula.
        past: The number of keys of earlier calls.
        queries: The number of queries.
        keys: The number of all keys.
        square: Whether there are as many new keys as queries. Otherwise the last query sees all keys, as runs of the
            kernel show; such attention is not documented.
    """
    rows = op.unsqueeze(op.counting(queries), 1)
    if not isinstance(past, int) or past:
        rows = op.Add(rows, op.as_value(past))
    allowed = op.LessOrEqual(op.unsqueeze(op.counting(keys), 0), rows)
    if not square:
        end = op.as_value(op.plus(past, queries))
        allowed = op.Or(allowed, op.Equal(op.Add(rows, op.number(1, rows)), end))
    return allowed


def padding_bias(
    op: Formula, mask: ir.Value | None, batch: ir.Value, past: Size, queries: Size, keys: Size, filled: float
) -> ir.Value | None:
    """Return the bias that a mask of any rank adds to scores; None without one.

    Ranks, from ONNX Runtime's schemas and runs of its kernel: 1 for lengths of `batch` elements, with starts in a
    second `batch` elements where it has two of them, or lengths and sums of lengths in `3 * batch + 2`; 2 for [batch,
    keys]; 3 for [batch, queries, keys]; 4 for [batch, 1, longest, longest], of which the rows and columns in use are
    read.

    Args:
        op: The formula.
        mask: The mask, of int32.
        batch: A value whose first axis is the batch.
        past: The number of keys of earlier calls.
        queries: The number of queries.
        keys: The number of keys.
        filled: The number that is added to the scores of masked keys.
    """
    if mask is None:
        return None
    rank = op.rank(mask)
    if rank == 1:
        return where_allowed(op, _within_lengths(op, mask, batch, keys), filled)
    if rank == 4:
        mask = op.slice(op.slice(mask, 2, past, op.plus(past, queries)), 3, 0, keys)
    allowed = op.Greater(mask, op.number(0, mask))
    axes = {2: (1, 2), 3: (1,), 4: ()}.get(rank)
    if axes is None:
        op.refuse(f"its mask has {rank} axes")
    return where_allowed(op, op.unsqueeze(allowed, *axes) if axes else allowed, filled)


def _within_lengths(op: Formula, mask: ir.Value, batch: ir.Value, keys: Size) -> ir.Value:
    import onnx_ir as ir

    rows, length = op.size(batch, 0), op.size(mask, 0)
    same = batch.shape is not None and mask.shape is not None and batch.shape[0] == mask.shape[0]
    is_open = not same and not (isinstance(rows, int) and isinstance(length, int))
    both = isinstance(rows, int) and length == 2 * rows and length != rows
    mask = op.cast(mask, ir.DataType.INT64)
    places = op.counting(keys)

    def column(values: ir.Value) -> ir.Value:
        return op.reshape(values, -1, 1, 1, 1)

    ends = mask if same else op.slice(mask, 0, 0, rows)
    allowed = op.Less(places, column(ends))
    if both or is_open:
        twice = op.plus(rows, rows)
        if is_open:  # whether there is a start after the length of each row is known in each run
            none = op.expand(op.integers([0], "none"), rows)
            has_starts = op.Equal(op.as_value(length), op.as_value(twice))
            starts = op.Where(has_starts, op.slice(op.Concat(mask, none, axis=0), 0, rows, twice), none)
        else:
            starts = op.slice(mask, 0, rows, twice)
        allowed = op.And(allowed, op.GreaterOrEqual(places, column(starts)))
    return allowed
