"""Caches of keys and values in which the entries of a batch have individual lengths, in floats or quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import dtype_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula, Size


class Rows(NamedTuple):
    """How a cache and the new rows of a call become the cache after it; the same for keys and values.

    Attributes:
        source: For each row after the call, its row in the cache before and the new ones after it, [batch, rows]; None
            if there was no cache.
        length: The number of rows after the call.
        used: The number of rows to attend to; None for those of the cache before, and the new ones.
        places: The positions of the rows to attend to, [batch or 1, rows]; of rows in no use, one beyond all others.
    """

    source: ir.Value | None
    length: Size
    used: Size | None
    places: ir.Value


class Cached(NamedTuple):
    """A cache after a call, [batch, heads, rows, size].

    Attributes:
        attended: The rows to attend to.
        present: All rows.
    """

    attended: ir.Value
    present: ir.Value


def plain_rows(op: Formula, past: ir.Value | None, new: ir.Value, lengths: ir.Value, total: Size) -> Rows:
    """Return the rows of a cache in which row t holds position t.

    Row t is row t of `past` before the length of its entry, and then row `t - length` of `new`. Rows after the new
    ones are not defined; they repeat the last new one.

    Args:
        op: The formula.
        past: The cache before, whose rows may be more than those in use; None if there is none.
        new: The new rows.
        lengths: The numbers of rows in use before the call, [batch].
        total: The number of rows in use by the longest entry, with the new ones.
    """
    more = op.size(new, 2)
    if past is None:
        return Rows(None, more, more, op.unsqueeze(op.counting(more), 0))
    rows = op.size(past, 2)
    longest = max(rows, total) if isinstance(rows, int) and isinstance(total, int) else None
    longest = op.Max(op.as_value(rows), op.as_value(total)) if longest is None else longest
    # In one tensor, old rows come first: row t of an entry comes from row t, or from the rows after them.
    places = op.unsqueeze(op.counting(longest), 0)
    ahead = op.Sub(places, op.unsqueeze(lengths, 1))
    index = op.Where(op.Less(ahead, _int64(op, 0)), places, _behind(op, ahead, rows, more))
    return Rows(index, longest, total, op.unsqueeze(op.counting(total), 0))


def windowed_rows(op: Formula, past: ir.Value, new: ir.Value, before: ir.Value, after: ir.Value, window: int) -> Rows:
    """Return the rows of a cache that keeps the last positions, `window` of them or more, from its first row on.

    With a capacity of C rows, G = C - window + 1 positions leave at once: after T tokens, the cache holds the last
    T - G * ceil((T - C) / G), or T of them up to C.

    Args:
        op: The formula.
        past: The cache before.
        new: The new rows.
        before: The numbers of tokens before the call, [batch].
        after: Those after it.
        window: The number of positions that a token sees.
    """
    rows = op.size(past, 2)
    op.refuse_if(isinstance(rows, int) and rows < window, f"its cache has {rows} rows for a window of {window}")
    more, capacity = op.size(new, 2), op.as_value(rows)
    last = op.Sub(capacity, _int64(op, 1))
    step = op.Max(op.Sub(capacity, _int64(op, window - 1)), _int64(op, 1))

    def first_position(tokens: ir.Value) -> ir.Value:
        # The quotient of `over` and `step`, rounded up, times `step`; each term is small where tokens and rows are.
        over = op.Max(op.Sub(tokens, capacity), _int64(op, 0))
        whole = op.Max(op.Sub(over, _int64(op, 1)), _int64(op, 0))
        leaving = op.Sub(whole, op.Mod(whole, step))
        found = op.Add(leaving, op.Mul(op.Min(over, _int64(op, 1)), step))
        # The bounds change nothing; they let engines of 32 bits prove what is computed from it.
        return op.unsqueeze(op.Min(op.Max(found, _int64(op, 0)), _int64(op, BEYOND)), 1)

    def used(positions: ir.Value, tokens: ir.Value) -> ir.Value:
        unused = op.cast(op.GreaterOrEqual(positions, tokens), dtype_of(positions))
        return op.Add(positions, op.Mul(unused, _int64(op, _FAR)))

    places, tokens = op.unsqueeze(op.counting(rows), 0), op.unsqueeze(before, 1)
    old, first = op.Add(places, first_position(before)), first_position(after)
    ahead = op.Sub(op.Add(places, first), tokens)
    kept = op.Sub(op.Add(places, first), first_position(before))
    kept = op.Min(op.Max(kept, _int64(op, 0)), last)
    index = op.Where(op.Less(ahead, _int64(op, 0)), kept, _behind(op, ahead, rows, more))
    added = op.Add(tokens, op.unsqueeze(op.counting(more), 0))
    return Rows(index, rows, None, op.Concat(used(old, tokens), used(added, op.unsqueeze(after, 1)), axis=1))


BEYOND = 2**29
"""A position after all others, so that no query sees it; small enough for engines of 32 bits to add others to it."""
_FAR = 2**27
"""What is added to positions from the last one on, so that no query sees them: more than the tokens of a call."""


def _int64(op: Formula, number: int) -> ir.Value:
    import onnx_ir as ir

    return op.number(number, ir.DataType.INT64)


def _behind(op: Formula, ahead: ir.Value, rows: Size, more: Size) -> ir.Value:
    """Return the index of new rows, which come after `rows` others; beyond the last one, of that."""
    last = op.Sub(op.as_value(more), _int64(op, 1))
    return op.Add(op.Min(op.Max(ahead, _int64(op, 0)), last), op.as_value(rows))


def updated(op: Formula, rows: Rows, past: ir.Value | None, new: ir.Value) -> Cached:
    """Return the cache after a call.

    Args:
        op: The formula.
        rows: How its rows are made.
        past: The cache before; None if there is none.
        new: The new rows, as the cache holds them.
    """
    if past is None or rows.source is None:
        return Cached(new, new)
    every = op.Concat(past, new, axis=2)
    batch = op.size(past, 0)
    extents = [op.named(past, 0), op.extent(new, 1), rows.length, op.extent(new, 3)]
    if batch == 1:
        present = op.Gather(every, op.squeeze(rows.source, 0), axis=2)
    else:
        shape = op.shape([batch, op.size(past, 1), rows.length, op.size(past, 3)])
        present = op.GatherElements(every, op.Expand(op.unsqueeze(rows.source, 1, 3), shape), axis=2)
    present = op.of_shape(present, extents)
    if rows.used is None:
        extents[2] = op.extent(every, 2)
        return Cached(op.of_shape(every, extents), present)
    if isinstance(rows.length, int) and rows.length == rows.used:
        return Cached(present, present)
    extents[2] = rows.used
    return Cached(op.of_shape(op.slice(present, 2, 0, rows.used), extents), present)


def _type_of_cache(op: Formula, name: str) -> str:
    return op.attribute(f"{name}_quant_type")


def _scale(op: Formula, x: ir.Value, name: str) -> ir.Value:
    """Return the scale of a cache, which broadcasts with it."""
    scale = op.required(f"{name}_scale")
    if _type_of_cache(op, name) == "PER_TENSOR":
        return op.scalar(scale)
    return op.reshape(scale, 1, op.required_extent(x, 1, "number of heads"), 1, -1)


def quantized(op: Formula, new: ir.Value, name: str) -> ir.Value:
    """Return new rows as the cache holds them: integers of 8 bits, or pairs of 4 bits with the first one low.

    Integers of 4 bits are held with 8 added. The rules are those of runs of the kernel.
    """
    import onnx_ir as ir

    if _type_of_cache(op, name) == "NONE":
        return new
    bits = op.attribute("kv_cache_bit_width", 8)
    low, high = (-8.0, 7.0) if bits == 4 else (-128.0, 127.0)
    number = op.Round(op.Div(op.wide(new), _scale(op, new, name)))
    number = op.Max(op.Min(number, op.number(high, number)), op.number(low, number))
    if bits != 4:
        return op.cast(number, ir.DataType.INT8)
    size = op.required_extent(new, 3, "size of a head")
    number = op.Add(number, op.number(8, number))
    first, second = (op.slice(number, 3, start, size, 2) for start in (0, 1))
    return op.cast(op.Add(first, op.scaled(second, 16)), ir.DataType.UINT8)


def dequantized(op: Formula, rows: ir.Value, name: str) -> ir.Value:
    """Return rows of a cache in the type to compute in."""
    import onnx_ir as ir

    if _type_of_cache(op, name) == "NONE":
        return op.wide(rows)
    number = op.cast(rows, ir.DataType.FLOAT)
    if op.attribute("kv_cache_bit_width", 8) == 4:
        second = op.Floor(op.scaled(number, 1 / 16))
        first = op.Sub(number, op.scaled(second, 16))
        pairs = op.Concat(op.unsqueeze(first, 4), op.unsqueeze(second, 4), axis=4)
        size = 2 * op.required_extent(rows, 3, "size of a row")
        number = op.Sub(op.reshape(pairs, 0, 0, 0, size), op.number(8, number))
    return op.Mul(number, _scale(op, number, name))
