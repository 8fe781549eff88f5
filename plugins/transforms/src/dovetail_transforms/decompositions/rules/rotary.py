"""Rotary position embeddings: pairs of elements rotated by the angle of a position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula


def rotated(op: Formula, x: ir.Value, cos: ir.Value, sin: ir.Value, interleaved: bool) -> ir.Value:
    """Return `x` with the pairs of its last axis rotated; elements beyond the angles stay.

    Args:
        op: The formula.
        x: Values, in the type to compute in.
        cos: Cosines that broadcast with `x`, with half as many elements in the last axis as are turned.
        sin: Their sines.
        interleaved: Whether the elements of a pair are adjacent; else the second one is half a width away.
    """
    rank = op.rank(x)
    half = op.required_extent(cos, op.rank(cos) - 1, "width of the cosines")
    size = op.required_extent(x, rank - 1, "size of a head")
    op.refuse_if(2 * half > size, f"heads of {size} elements are turned by {half} angles")
    kept, whole = None, x
    if 2 * half < size:
        x, kept = op.split(x, rank - 1, [2 * half, size - 2 * half])
    if interleaved:
        one, other = (op.slice(x, rank - 1, start, 2 * half, 2) for start in (0, 1))
    else:
        one, other = op.split(x, rank - 1, [half, half])
    first, second = op.Sub(op.Mul(one, cos), op.Mul(other, sin)), op.Add(op.Mul(other, cos), op.Mul(one, sin))
    if interleaved:
        pairs = op.Concat(op.unsqueeze(first, rank), op.unsqueeze(second, rank), axis=rank)
        result = op.reshape(pairs, *[0] * (rank - 1), 2 * half)
    else:
        result = op.Concat(first, second, axis=rank - 1)
    result = result if kept is None else op.Concat(result, kept, axis=rank - 1)
    return result if whole.shape is None else op.of_shape(result, list(whole.shape))


def _on_heads(op: Formula, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    """Return the input of the node turned by angles per batch and position."""
    interleaved, wide = bool(op.attribute("interleaved", 0)), op.wide(x)
    cos, sin = op.wide(cos), op.wide(sin)
    if op.rank(x) == 4:
        return op.cast(rotated(op, wide, op.unsqueeze(cos, 1), op.unsqueeze(sin, 1), interleaved), dtype_of(x))
    heads = op.attribute("num_heads", 0)
    if heads:
        hidden = op.required_extent(x, 2, "last extent of its input")
        size = hidden // heads
    else:
        size = 2 * op.required_extent(cos, 2, "width of the cosines")
    split = op.reshape(wide, 0, 0, -1, size)
    result = rotated(op, split, op.unsqueeze(cos, 2), op.unsqueeze(sin, 2), interleaved)
    return op.cast(op.shaped_like(result, x), dtype_of(x))


def _rotary_embedding(op: Formula) -> ir.Value:
    """Heads rotated by the angles of their positions.

    `position_ids` of one element is the position of the first token. The attributes `scale` and `is_packed_batching`
    change nothing: the kernel reads them for checks alone, as runs with other values show.
    """
    x, positions = op.required("input"), op.required("position_ids")
    if op.rank(positions) == 1:
        steps = op.counting(op.size(x, 2 if op.rank(x) == 4 else 1))
        positions = op.unsqueeze(op.Add(positions, steps), 0)
    cos, sin = (op.Gather(op.required(f"{name}_cache"), positions, axis=0) for name in ("cos", "sin"))
    return _on_heads(op, x, cos, sin)


def _multimodal_rotary_embedding(op: Formula) -> ir.Value:
    """Heads rotated by angles of three positions (time, height, width), each for its part of the pairs."""
    import numpy as np

    x, positions = op.required("input"), op.required("position_ids")
    sections: Sequence[int] = op.attribute("mrope_section")
    half = sum(sections)
    stream = np.zeros(half, np.int64)
    if op.attribute("mrope_layout", 0):
        for which in (1, 2):
            stream[which : 3 * sections[which] : 3] = which
    else:
        stream = np.repeat(np.arange(3), sections)
    chosen = (stream == np.arange(3)[:, None]).reshape(3, 1, 1, half).astype(np.float32)

    def angles(name: str) -> ir.Value:
        each = op.wide(op.Gather(op.required(name), positions, axis=0))
        return op.total(op.Mul(each, op.tensor(chosen, "sections")), 0, keepdims=0)

    return _on_heads(op, x, angles("cos_cache"), angles("sin_cache"))


def _gemma_rotary_embedding(op: Formula) -> tuple[ir.Value, ir.Value]:
    """`q * cos + q_rot * sin`, and the same of the keys; cosines and sines are rounded to float16 first."""
    q = op.required("q")
    cos, sin = (op.wide(op.unsqueeze(op.cast(made(op.required("emb")), dtype_of(q)), 1)) for made in (op.Cos, op.Sin))

    def turned(name: str) -> ir.Value:
        x, other = op.wide(op.required(name)), op.wide(op.required(f"{name}_rot"))
        return op.cast(op.Add(op.Mul(x, cos), op.Mul(other, sin)), dtype_of(q))

    return turned("q"), turned("k")


RULES: Mapping = {
    "com.microsoft.RotaryEmbedding": _rotary_embedding,
    "com.microsoft.MRotaryEmbedding": _multimodal_rotary_embedding,
    "com.microsoft.GemmaRotaryEmbedding": _gemma_rotary_embedding,
}
