"""Caches of keys and values whose entries of a batch have lengths of their own, in floats or quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula, Size


class Cached(NamedTuple):
    """A cache after a call, [batch, heads, rows, size].

    Attributes:
        used: The rows up to the length of the longest entry.
        present: All rows.
    """

    used: ir.Value
    present: ir.Value


def updated(op: Formula, past: ir.Value | None, new: ir.Value, lengths: ir.Value, total: Size) -> Cached:
    """Return a cache with new rows behind those of every entry.

    Row t is row t of `past` before the length of its entry, and then row `t - length` of `new`. Rows behind the new ones
    are not defined; they repeat the last new one.

    Args:
        op: The formula.
        past: The cache before, whose rows may be more than those in use; None if there is none.
        new: The new rows.
        lengths: The numbers of rows in use, [batch].
        total: The number of rows in use by the longest entry, with the new ones.
    """
    import onnx_ir as ir

    if past is None:
        return Cached(new, new)
    zero, one = op.number(0, ir.DataType.INT64), op.number(1, ir.DataType.INT64)
    rows, more, batch = op.size(past, 2), op.size(new, 2), op.size(past, 0)
    longest = max(rows, total) if isinstance(rows, int) and isinstance(total, int) else None
    longest = op.Max(op.as_value(rows), op.as_value(total)) if longest is None else longest
    # In one tensor, old rows stand first: row t of an entry comes from t, or from behind them.
    every = op.Concat(past, new, axis=2)
    places = op.unsqueeze(op.counting(longest), 0)
    ahead = op.Sub(places, op.unsqueeze(lengths, 1))
    behind = op.Min(op.Max(ahead, zero), op.Sub(op.as_value(more), one))
    index = op.Where(op.Less(ahead, zero), places, op.Add(behind, op.as_value(rows)))
    if batch == 1:
        present = op.Gather(every, op.squeeze(index, 0), axis=2)
    else:
        shape = op.shape([op.size(past, 0), op.size(past, 1), longest, op.size(past, 3)])
        present = op.GatherElements(every, op.Expand(op.unsqueeze(index, 1, 3), shape), axis=2)
    extents = [batch, op.extent(new, 1), longest, op.extent(new, 3)]
    present = op.of_shape(present, extents)
    if isinstance(longest, int) and longest == total:
        return Cached(present, present)
    extents[2] = total
    return Cached(op.of_shape(op.slice(present, 2, 0, total), extents), present)


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


def dequantized(op: Formula, rows: ir.Value, name: str, dtype: ir.DataType) -> ir.Value:
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
