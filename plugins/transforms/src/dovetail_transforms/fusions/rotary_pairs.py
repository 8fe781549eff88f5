"""Rotary position embedding in the form that rotates neighbors, as GPT-J, CodeGen, GLM and Cohere have it.

Given:  %y = %x * %cos + Reshape(Concat(-%x[1::2], %x[0::2])) * %sin, along the last axis
Result: %y = RotaryEmbedding(%x, cos of the pairs, sin of the pairs), interleaved

Heads come before the positions, or after them. Cosines and sines have every element twice: they are constants, or
PyTorch's `repeat_interleave` makes them, which exporters write as Tile, Expand or Concat between Unsqueeze and Reshape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.ir import input_of, is_onnx

from dovetail_transforms.fusions.attention_inputs import is_same_extent
from dovetail_transforms.fusions.rotary_halves import constant_of, slice_bounds
from dovetail_transforms.lowering.node_facts import attribute, constant, extents, rank

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


_REPEATING = ("Concat", "Expand", "Tile")


class Pairs(NamedTuple):
    """Cosines or sines before every element is written twice.

    Attributes:
        value: One element for each pair, of three axes, or of four with one for the heads.
        held: The same as a constant of four axes, instead of a value.
        heads: The axis of the heads, 1 or 2.
    """

    value: ir.Value | None
    held: np.ndarray | None
    heads: int


def paired_rotary_pattern(op, x, cos, sin, exchanged):
    """Return the pattern of the sum of both products. Exporters read the shape of the exchanged pairs once more."""
    return op.Add(op.Mul(x, cos), op.Mul(op.Reshape(exchanged, ..., called="flat"), sin))


def check_paired_rotary(x: ir.Value, cos: ir.Value, sin: ir.Value, exchanged: ir.Value, flat: ir.Node) -> str:
    """Return why what the pattern found is no rotary embedding of neighbors; empty if it is one."""
    known = extents(x)
    if known is None or len(known) != 4 or known[3] is None or known[3] % 2:
        return "its input does not have four axes with a known, even size"
    if not _exchanges_neighbors(exchanged, x, known[3]):
        return "it does not exchange the neighbors of the last axis"
    if not _merges_last_axes(exchanged, flat.outputs[0]):
        return "its pairs are not known to be merged into the last axis alone"
    first, second = (pairs_of(value, x) for value in (cos, sin))
    if first is None or second is None:
        return "its cosines or sines are not known to have every element twice"
    if first.heads != second.heads:
        return "its cosines and sines have their heads at different axes"
    return ""


def _exchanges_neighbors(exchanged: ir.Value, x: ir.Value, size: int) -> bool:
    """Check whether a value is `Concat(Unsqueeze(-x[1::2], -1), Unsqueeze(x[0::2], -1))` along a last axis."""
    joined = _producer(exchanged, "Concat")
    if joined is None or attribute(joined, "axis") not in (-1, 4) or len(joined.inputs) != 2:
        return False
    if (extents(exchanged) or [])[3:] != [size // 2, 2]:
        return False
    parts = [_producer(value, "Unsqueeze") for value in joined.inputs]
    negated = _producer(parts[0].inputs[0], "Neg") if parts[0] is not None else None
    odd = _producer(negated.inputs[0], "Slice") if negated is not None else None
    even = _producer(parts[1].inputs[0], "Slice") if parts[1] is not None else None
    return all(
        cut is not None and cut.inputs[0] is x and slice_bounds(cut, size) == (start, size, 2)
        for cut, start in ((odd, 1), (even, 0))
    )


def _producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == op_type and is_onnx(node) else None


def pairs_of(value: ir.Value, x: ir.Value) -> Pairs | None:
    """Return the cosines or sines of pairs of neighbors; None if they are not known to have every element twice."""
    known, size = extents(value), (extents(x) or [None])[-1]
    if value.dtype != x.dtype or size is None:
        return None
    held = constant_of(value)
    if held is not None:
        if not 2 <= held.ndim <= 4 or held.shape[-1] != size or (held[..., 0::2] != held[..., 1::2]).any():
            return None
        held = held.reshape((1,) * (4 - held.ndim) + held.shape)[..., 0::2]
        heads = _heads_axis(list(held.shape))
        return None if heads is None else Pairs(None, held, heads)
    heads = _heads_axis(known)
    source = _before_repetition(value)
    if source is None:  # the axis of the heads may be added afterwards
        node = _producer(value, "Unsqueeze")
        source = _before_repetition(input_of(node, 0)) if node is not None else None
    elif rank(source) == 4:
        node = _producer(source, "Unsqueeze")
        source = input_of(node, 0) if node is not None else source
    if heads is None or source is None or rank(source) not in (3, 4):
        return None
    return Pairs(source, None, heads)


def _heads_axis(known: list[int | None] | None) -> int | None:
    """Return the axis along which cosines or sines are the same for all heads."""
    if known is None or len(known) != 4:
        return None
    return next((axis for axis in (1, 2) if known[axis] == 1), None)


def _before_repetition(value: ir.Value) -> ir.Value | None:
    """Return the value whose elements `Reshape(Tile(Unsqueeze(value, -1)))` repeats; None if it does something else."""
    merged = _producer(value, "Reshape")
    repeated = input_of(merged, 0).producer() if merged is not None else None
    if repeated is None or repeated.op_type not in _REPEATING or not is_onnx(repeated):
        return None
    apart = _producer(repeated.inputs[0], "Unsqueeze")
    if apart is None:
        return None
    source, twice = input_of(apart, 0), repeated.outputs[0]
    axes = attribute(apart, "axes", None) or constant(apart.inputs[1] if len(apart.inputs) > 1 else None)
    last = rank(source)
    if axes is None or last is None or [int(axis) for axis in axes] not in ([-1], [last]):
        return None
    if repeated.op_type == "Concat":
        axis = attribute(repeated, "axis")
        if axis not in (-1, last) or len(repeated.inputs) != 2 or repeated.inputs[0] is not repeated.inputs[1]:
            return None
    kept = all(is_same_extent(twice, axis, source, axis) for axis in range(last))
    if not kept or (extents(twice) or [None])[-1] != 2:
        times = constant(repeated.inputs[1]) if repeated.op_type == "Tile" else None
        if times is None or times.tolist() != [1] * last + [2]:
            return None
    return source if _merges_last_axes(twice, value) else None


def _merges_last_axes(apart: ir.Value, merged: ir.Value) -> bool:
    """Check whether a Reshape is known to merge the last two axes, and to keep the others."""
    before, after = rank(apart), rank(merged)
    if before is None or after != before - 1:
        return False
    return all(is_same_extent(apart, axis, merged, axis) for axis in range(before - 2))


def paired_tables(op: Any, x: ir.Value, cos: ir.Value, sin: ir.Value) -> tuple[list[ir.Value], int]:
    """Build cosines and sines with a row for each of the input, `[batch, sequence, size / 2]`.

    Returns:
        Both, and the axis of the heads.
    """
    import numpy as np
    import onnx_ir as ir

    tables, heads = [], 1
    for value, what in ((cos, "cos"), (sin, "sin")):
        pairs = pairs_of(value, x)
        assert pairs is not None, "the check asks for it"
        heads = pairs.heads
        if pairs.held is not None:
            rows = np.ascontiguousarray(pairs.held.squeeze(heads))
            found = op.constant(ir.tensor(rows, dtype=x.dtype), what)
        else:
            assert pairs.value is not None, "one of both is given"
            axis = op.constant(ir.tensor(np.array([heads], np.int64)), "heads")
            found = op.Squeeze(pairs.value, axis) if rank(pairs.value) == 4 else pairs.value
        size = op.constant(ir.tensor(np.array([((extents(x) or [0])[-1] or 0) // 2], np.int64)), what)
        batch, length = op.Shape(x, start=0, end=1), op.Shape(x, start=3 - heads, end=4 - heads)
        tables.append(op.Expand(found, op.Concat(batch, length, size, axis=0)))
    return tables, heads
