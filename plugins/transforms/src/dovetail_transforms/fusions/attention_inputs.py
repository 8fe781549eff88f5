"""Inputs of a fused Attention: masks, queries, and heads before they are repeated.

The forms are those of exporters: `repeat_kv` of transformers in PyTorch's two exporters, and masks that broadcast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.ir import input_of, is_onnx

from dovetail_transforms.lowering.node_facts import attribute, constant, extents, rank
from dovetail_transforms.rewriting import number_of

if TYPE_CHECKING:
    import onnx_ir as ir


_DEEPEST = 8  # nodes between a mask or a shape and the constants that it is made of
_MOVING = ("Cast", "Expand", "Reshape", "Slice", "Squeeze", "Unsqueeze")
_LOWEST_KEPT = -1e38  # the kernel of ONNX Runtime gives 0 for rows that are the lowest float throughout


class SharedHeads(NamedTuple):
    """Keys or values before every head is repeated for several queries.

    Attributes:
        value: `[batch, heads, sequence, size]`.
        times: How often each head is repeated.
    """

    value: ir.Value
    times: int


def shared_heads(repeated: ir.Value) -> SharedHeads | None:
    """Return the heads that `Reshape(Expand(Unsqueeze(heads, 2)))` repeats; None if it does something else."""
    reshape = _producer(repeated, "Reshape")
    expand = _producer(input_of(reshape, 0), "Expand") if reshape is not None else None
    unsqueeze = _producer(input_of(expand, 0), "Unsqueeze") if expand is not None else None
    if reshape is None or expand is None or unsqueeze is None:
        return None
    axes = constant(unsqueeze.inputs[1] if len(unsqueeze.inputs) > 1 else None, unsqueeze.version or 13)
    heads, after = input_of(unsqueeze, 0), extents(repeated)
    known = extents(heads)
    if axes is None or axes.tolist() != [2] or known is None or after is None or len(known) != 4 or len(after) != 4:
        return None
    if known[1] is None or known[3] is None or after[3] != known[3] or after[1] is None:
        return None
    if not (_is_kept(reshape, 0, expand, 0) and _is_kept(reshape, 2, expand, 3)):
        return None
    times = (extents(expand.outputs[0]) or [None] * 5)[2] or _element(input_of(expand, 1), 2)
    return SharedHeads(heads, times) if times and times > 1 and known[1] * times == after[1] else None


def _is_kept(reshape: ir.Node, axis: int, expand: ir.Node, before: int) -> bool:
    """Check whether an axis of repeated heads is that of the heads: by its extent, or as what is left of them."""
    if is_same_extent(reshape.outputs[0], axis, input_of(expand, 0), before):
        return True
    same = is_same_extent(expand.outputs[0], before, input_of(expand, 0), before)
    same = same or _element(input_of(expand, 1), before) == 1
    return same and _element(input_of(reshape, 1), axis) == -1


def is_same_extent(one: ir.Value, axis: int, other: ir.Value, other_axis: int) -> bool:
    """Check whether two extents are known to be equal: the same number, or the same name."""
    if one.shape is None or other.shape is None:
        return False
    first, second = one.shape[axis], other.shape[other_axis]
    if isinstance(first, int) or isinstance(second, int):
        return first == second
    return first.value is not None and first.value == second.value


def is_computed_extent(shape: ir.Value, index: int, of: ir.Value, axis: int) -> bool:
    """Check whether an element of a shape is computed as an extent of a value: a Slice or Gather of its Shape."""
    value: ir.Value | None = shape
    for _ in range(_DEEPEST):
        node = value.producer() if value is not None else None
        if node is None or not is_onnx(node):
            return False
        if node.op_type == "Concat":
            for part in node.inputs:
                length = (extents(part) or [None])[0]
                if length is None:
                    return False
                if index < length:
                    value = part
                    break
                index -= length
            else:
                return False
        elif node.op_type in ("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"):
            value = node.inputs[0]
        elif node.op_type in ("Gather", "Slice"):
            read, taken = _producer(input_of(node, 0), "Shape"), constant(node.inputs[1])
            if read is None or read.inputs[0] is not of or taken is None or taken.size != 1:
                return False
            if attribute(read, "start", 0) or attribute(read, "end") is not None:
                return False
            return int(taken.reshape(-1)[0]) + index in (axis, axis - (rank(of) or 0))
        else:
            return False
    return False


def why_not_hidden(mask: ir.Value, guarded: bool) -> str:
    """Return why rows that a mask hides whole may give other results than an Attention does; empty if not.

    Guarded rows are 0, as those of Attention are, where they are hidden by infinity, and averages otherwise.
    """
    if guarded and _hides_with(mask) is None:
        return "it gives 0 for rows that its mask hides whole, and what the mask hides with is not known"
    return ""


def hides_with_infinity(mask: ir.Value) -> bool:
    """Check whether a mask is known to hide with minus infinity."""
    return _hides_with(mask) == float("-inf")


def hides_less_than(mask: ir.Value, lowest: float) -> bool:
    """Check whether a mask is known to hide with a number above `lowest`, which any type can hold."""
    found = _hides_with(mask)
    return found is not None and found > lowest


def prepared_mask(op: Any, mask: ir.Value, q: ir.Value, guarded: bool, lowest_kept: float = _LOWEST_KEPT) -> ir.Value:
    """Build the mask with a row for each query, finite where hidden rows are averages."""
    import numpy as np
    import onnx_ir as ir

    assert mask.dtype is not None, "the check asks for it"
    has_rows = is_same_extent(mask, -2, q, 2)
    if not (guarded and hides_with_infinity(mask)):
        lowest = max(lowest_kept, float(np.finfo(mask.dtype.numpy()).min) / 2)
        mask = op.Max(mask, op.constant(ir.tensor(np.array(lowest, mask.dtype.numpy())), "lowest"))
    if has_rows:
        return mask
    one = op.constant(ir.tensor(np.array([1], np.int64)), "one")
    return op.Expand(mask, op.Concat(op.Shape(q, start=2, end=3), one, axis=0))


def with_heads(op: Any, q: ir.Value, heads: int) -> ir.Value:
    """Build queries that are known to have a number of heads."""
    import numpy as np
    import onnx_ir as ir

    if (extents(q) or [None, None])[1] == heads:
        return q
    return op.Expand(q, op.constant(ir.tensor(np.array([1, heads, 1, 1], np.int64)), "heads"))


def read_shape_of(heads: ir.Value, repeated: ir.Value) -> None:
    """Let readers of repeated heads' extents, other than their number, read those of the heads before."""
    for reader, _ in list(repeated.uses()):
        if reader.op_type == "Shape" and not attribute(reader, "start", 0) and attribute(reader, "end") is None:
            gathers = [one for one, _ in reader.outputs[0].uses()]
            chosen = [number_of(one.inputs[1]) if one.op_type == "Gather" else None for one in gathers]
            if not reader.outputs[0].is_graph_output() and all(index in (0, 2, 3) for index in chosen):
                reader.replace_input_with(0, heads)


def _producer(value: ir.Value, op_type: str) -> ir.Node | None:
    node = value.producer()
    return node if node is not None and node.op_type == op_type and is_onnx(node) else None


def _hides_with(mask: ir.Value) -> float | None:
    """Return the number that a mask has where it hides; None if that is not known."""
    value = mask
    for _ in range(_DEEPEST):
        node = value.producer()
        if node is None or not is_onnx(node):
            return None
        if node.op_type == "Where":
            numbers = [number_of(one) for one in node.inputs[1:]]
            return None if None in numbers or 0 not in numbers else min(filter(None, numbers), default=None)
        if node.op_type not in _MOVING:
            return None
        value = input_of(node, 0)
    return None


def _element(value: ir.Value, index: int) -> int | None:
    """Return an element of a shape that is partly known: PyTorch's exporter replaces -1 by 1, and joins the rest."""
    for _ in range(_DEEPEST):
        known, node = constant(value), value.producer()
        if known is not None:
            return int(known[index]) if known.ndim == 1 and index < len(known) else None
        if node is None or not is_onnx(node):
            return None
        if node.op_type == "Where":
            same = _producer(input_of(node, 0), "Equal")
            compared = constant(same.inputs[1]) if same is not None else None
            if compared is None or (compared != -1).any() or same is None or same.inputs[0] is not node.inputs[2]:
                return None
            found = _element(input_of(node, 2), index)
            return None if found == -1 else found
        if node.op_type == "Concat":
            for part in node.inputs:
                length = (extents(part) or [None])[0]
                if length is None or part is None:
                    return None
                if index < length:
                    value = part
                    break
                index -= length
            else:
                return None
        elif node.op_type in ("Cast", "Identity") or node.op_type == "Reshape" and rank(input_of(node, 0)) == 1:
            value = input_of(node, 0)
        else:
            return None
    return None
