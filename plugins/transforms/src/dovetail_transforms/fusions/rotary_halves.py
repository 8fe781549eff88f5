"""Rotary position embedding, in the form that rotates halves.

Given:  %y = %x * %cos + Concat(-%x[half:], %x[:half]) * %sin, along the last axis
Result: %y = RotaryEmbedding(%x, cos of one half, sin of one half)

The operator takes cosines and sines of half the size, so both halves must be equal: they are constants, or made by
`Cos` and `Sin` of angles that a Concat repeats, as models of transformers do. Where they are those of one row, or are
not known to have a row for each, they are expanded to the rows of the input. The form in which neighbors rotate is in
`rotary_pairs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.ir import input_of, is_onnx, shape_of

from dovetail_transforms.lowering.node_facts import attribute, constant, extents, rank
from dovetail_transforms.rewriting import number_of

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


_UNARY = ("Cast", "Cos", "Sin")
_DEEPEST = 8  # operators between the repeated angles and the product
_MOST_ELEMENTS = 1 << 24  # of constant cosines that are compared


def _rotated(op: Any, x: Any) -> Any:
    """Return the pattern of the second half, negated, before the first; the halves are cut by Slice or by Split."""
    cut = op.Split(x, ..., called="split")
    return op.either(
        op.Concat(op.Neg(op.Slice(x, ..., called="back")), op.Slice(x, ..., called="front"), called="joined"),
        op.Concat(op.Neg(op.output(cut, 1)), cut, called="joined"),
    )


def rotary_pattern(op, x, cos, sin):
    """Return the pattern of the sum of both products."""
    return op.Add(op.Mul(x, cos), op.Mul(_rotated(op, x), sin))


def check_rotary(
    x: ir.Value,
    cos: ir.Value,
    sin: ir.Value,
    joined: ir.Node,
    front: ir.Node | None = None,
    back: ir.Node | None = None,
    split: ir.Node | None = None,
) -> str:
    """Return why what the pattern found is no rotary embedding; empty if it is one."""
    known = extents(x)
    if known is None or len(known) != 4 or known[3] is None or known[3] % 2:
        return "its input is not [batch, heads, sequence, size] with a known, even size"
    if attribute(joined, "axis") not in (-1, 3):
        return "its halves are not joined along the last axis"
    size = known[3]
    if split is not None:
        halves = attribute(split, "axis", 0) in (-1, 3) and [(extents(part) or [0])[-1] for part in split.outputs]
        exchanged = halves == [size // 2, size // 2]
    else:
        assert front is not None and back is not None, "one of both forms matched"
        exchanged = (slice_bounds(front, size), slice_bounds(back, size)) == ((0, size // 2, 1), (size // 2, size, 1))
    if not exchanged:
        return "it does not exchange the halves of the last axis"
    for value in (cos, sin):
        if value.dtype != x.dtype:
            return "its cosines or sines have another type than its input"
        if why := _why_not_halved(value, x):
            return why
    return ""


def slice_bounds(part: ir.Node, size: int) -> tuple[int, int, int] | None:
    """Return start, end and step of a Slice along the last of four axes; None if it takes another axis."""
    given = [constant(value, part.version or 13) for value in part.inputs[1:]]
    numbers = [int(one.reshape(-1)[0]) for one in given if one is not None and one.size == 1]
    if len(numbers) < len(given) or not 3 <= len(numbers) <= 4 or numbers[2] not in (-1, 3):
        return None
    start, end = (max(0, bound + size) if bound < 0 else min(bound, size) for bound in numbers[:2])
    return start, end, numbers[3] if len(numbers) == 4 else 1


def _why_not_halved(value: ir.Value, x: ir.Value) -> str:
    """Return why cosines or sines are not `[batch, 1, sequence, size]` with two equal halves; empty if they are."""
    known, rows = extents(value), extents(x) or []
    if known is None or not 2 <= len(known) <= 4 or known[-1] != rows[3] or any(each != 1 for each in known[-3:-2]):
        return "its cosines or sines are not one row per position"
    for extent, own in zip(_rows(value), (rows[0], rows[2])):
        if extent not in (1, own) and None not in (extent, own) or own == 1 and extent != 1:
            return "its cosines or sines are for other rows than its input has"
    held = constant_of(value)
    if held is not None:
        half = held.shape[-1] // 2
        return "" if (held[..., :half] == held[..., half:]).all() else "the halves of its cosines or sines differ"
    source = _without_heads(value)
    if source is None or rank(source) != 3:
        return "its cosines or sines are no constants, and not computed as [batch, sequence, size]"
    return "" if _repeats(source) else "the halves of its cosines or sines are not known to be equal"


def _rows(value: ir.Value) -> tuple[int | None, int | None]:
    """Return the extents of batch and sequence of cosines or sines."""
    known = extents(value) or []
    return known[0] if len(known) == 4 else 1, known[-2]


def has_rows_of(value: ir.Value, x: ir.Value, one_for_all: bool = False) -> bool:
    """Check whether cosines or sines have a row for each of the input, of which symbols tell as well.

    Args:
        value: The cosines or sines.
        x: The input.
        one_for_all: Whether they are those of one row, which count for all of the batch.
    """
    import onnx_ir as ir

    shape, rows = shape_of(value), shape_of(x)
    batch = shape[0] if len(shape) == 4 else 1
    same = [one == other and one != ir.SymbolicDim(None) for one, other in ((batch, rows[0]), (shape[-2], rows[2]))]
    return same[1] and (batch == 1 if one_for_all else same[0])


def constant_of(value: ir.Value) -> np.ndarray | None:
    """Return cosines or sines that are constants of a moderate size; else None."""
    if value.const_value is None or value.is_graph_input() or value.const_value.size > _MOST_ELEMENTS:
        return None
    return value.const_value.numpy()


def _without_heads(value: ir.Value) -> ir.Value | None:
    """Return the value before the axis of the heads was added; None if that was done in another way."""
    node = value.producer()
    if node is None or node.op_type != "Unsqueeze" or not is_onnx(node):
        return None
    given = attribute(node, "axes")
    axes = given if given is not None else constant(node.inputs[1] if len(node.inputs) > 1 else None, node.version)
    return input_of(node, 0) if axes is not None and [int(axis) for axis in axes] in ([1], [-3]) else None


def _repeats(value: ir.Value) -> bool:
    """Check whether the halves of the last axis are equal: a Concat repeats one value, and the rest is elementwise."""
    for _ in range(_DEEPEST):
        node = value.producer()
        if node is None or not is_onnx(node):
            return False
        if node.op_type == "Concat":
            axis, axes = attribute(node, "axis"), rank(value)
            return len(node.inputs) == 2 and node.inputs[0] is node.inputs[1] and axis in (-1, (axes or 0) - 1)
        if node.op_type == "Mul" and any(number_of(other) is not None for other in node.inputs):
            value = next(other for other in node.inputs if other is not None and number_of(other) is None)
        elif node.op_type in _UNARY:
            value = input_of(node, 0)
        else:
            return False
    return False


def half_of(op: Any, value: ir.Value, what: str) -> ir.Value:
    """Build one half of cosines or sines as `[batch, sequence, size / 2]`."""
    import numpy as np
    import onnx_ir as ir

    held = constant_of(value)
    half = ((extents(value) or [0])[-1] or 0) // 2
    if held is not None:
        rows = held.reshape(-1 if held.ndim < 4 else held.shape[0], *held.shape[-2:])[..., :half]
        return op.constant(ir.tensor(np.ascontiguousarray(rows), dtype=value.dtype), what)
    source = _without_heads(value)
    assert source is not None, "the check asks for it"
    bounds = (op.constant(ir.tensor(np.array([bound], np.int64)), what) for bound in (0, half, -1))
    return op.Slice(source, *bounds)


def rows_of(op: Any, value: ir.Value, x: ir.Value, what: str) -> ir.Value:
    """Build one half of cosines or sines with a row for each of the input."""
    import numpy as np
    import onnx_ir as ir

    found = half_of(op, value, what)
    if has_rows_of(value, x):
        return found
    size = op.constant(ir.tensor(np.array([((extents(value) or [0])[-1] or 0) // 2], np.int64)), what)
    return op.Expand(found, op.Concat(op.Shape(x, start=0, end=1), op.Shape(x, start=2, end=3), size, axis=0))
