"""Rules for slices and lookups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_int64, int_list, shape_of, stepped_bounds

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


_END = (1 << 63) - 1
_LARGE = (1 << 31) - 1


def slice_(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Slice, and drop axes indexed by a number; narrowed extents remain int64."""
    axes = op.attr("axes")
    value = op["input"]
    wide = emit.wide(value)
    source = wide if wide is not None else value
    bounds = []
    for name in ("starts", "ends"):
        known = op.known_ints(name)
        if known is not None:
            known = [_END if bound >= _LARGE else bound for bound in known]
        bounds.append(emit.ints(known) if known is not None else int_list(op, name, emit))
    made = emit("Slice", [source, *bounds, emit.ints(axes)])
    dropped = [axis for axis in op.attr("decrease_axis") if axis >= 0]
    result, rank = op.result_shape(), op.shape("input")
    if dropped and rank is not None and len(dropped) == len(rank) and result is not None and len(result) == 1:
        dropped = dropped[1:]  # older programs have no scalars
    if dropped:
        made = emit("Squeeze", [made, emit.ints(dropped)])
    return made if wide is None else op.narrow(made)


def strided_slice(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Slice with steps."""
    bounds = stepped_bounds(op, op.known_ints("strides"), emit)
    return emit("Slice", [op["x"], *bounds, emit.ints(op.attr("axes")), int_list(op, "strides", emit)])


def _index_list(op: PdOp, argument: str, emit: GraphEmitter) -> ir.Value:
    """Return indices as a list, from a list, a scalar or a column."""
    shape = op.shape(argument)
    value = op[argument]
    return emit("Reshape", [value, emit.ints([-1])]) if shape is not None and len(shape) == 2 else value


def gather(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Gather slices by index."""
    axis = 0 if op.original("axis") is None else int(op.number("axis"))
    return emit("Gather", [op["x"], _index_list(op, "index", emit)], {"axis": axis})


def index_select(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Gather slices along an axis by index."""
    return emit("Gather", [op["x"], op["index"]], {"axis": op.attr("axis")})


def gather_nd(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Gather elements or slices by indices of the first axes."""
    return emit("GatherND", [op["x"], as_int64(op.operand("index"), emit)])


def index_sample(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Gather elements of each row."""
    return emit("GatherElements", [op["x"], op["index"]], {"axis": 1})


def take_along_axis(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Gather elements along an axis; the other extents are broadcast."""
    data, index, axis = op["arr"], op["indices"], op.axis(op.attr("axis"), "arr")
    first, second = op.shape("arr"), op.shape("indices")
    if first is None or second is None or len(first) != len(second):
        raise OpNotLowered("the ranks of its operands are not known, or differ")
    for at, (have, wanted) in enumerate(zip(first, second, strict=True)):
        if at != axis and have is not None and wanted is not None and have != wanted and 1 not in (have, wanted):
            continue
        if at != axis and have == 1 and wanted != 1:
            data = emit("Expand", [data, _one_axis(len(second), at, wanted, emit)]) if wanted else data
        elif at != axis and wanted == 1 and have is not None and have != 1:
            index = emit("Expand", [index, _one_axis(len(first), at, have, emit)])
    return emit("GatherElements", [data, index], {"axis": axis})


def _one_axis(rank: int, axis: int, extent: int, emit: GraphEmitter) -> ir.Value:
    return emit.ints([extent if at == axis else 1 for at in range(rank)])


def embedding(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Look up rows of a table; those of the padding index are zero."""
    import numpy as np

    rows = emit("Gather", [op["weight"], op["x"]])
    index = op.attr("padding_idx")
    table = op.constant("weight")
    if index < 0 or (table is not None and not table[index].astype(np.float32).any()):
        return rows
    hidden = emit("Equal", [as_int64(op.operand("x"), emit), emit.constant(np.array(index, np.int64))])
    hidden = emit("Unsqueeze", [hidden, emit.ints([-1])])
    return emit("Where", [hidden, emit.scalar(0, op.dtype("weight")), rows])


def where(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Select elements from two tensors by a condition."""
    return emit("Where", [op["condition"], op["x"], op["y"]])


def nonzero(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Return the indices of nonzero elements, one row each."""
    return emit("Transpose", [emit("NonZero", [op["condition"]])], {"perm": [1, 0]})


def masked_select(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Return a list of the elements selected by a mask."""
    mask = op["mask"]
    if op.shape("mask") != op.shape("x") or None in (op.shape("x") or (None,)):
        mask = emit("Expand", [mask, shape_of(op, "x", emit)])
    flat = [emit("Reshape", [value, emit.ints([-1])]) for value in (op["x"], mask)]
    return emit("Compress", flat, {"axis": 0})


def masked_fill(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Replace elements by a value where a mask is true."""
    return emit("Where", [op["mask"], op["value"], op["x"]])


def multiplex(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Select each row from one of several tensors."""
    import numpy as np

    stacked = emit("Concat", [emit("Unsqueeze", [item, emit.ints([0])]) for item in op.items("inputs")], {"axis": 0})
    index = emit("Reshape", [as_int64(op.operand("index"), emit), emit.ints([-1])])
    numbers = [emit.constant(np.array(number, np.int64)) for number in (0, 1)]
    rows = emit("Range", [numbers[0], emit("Size", [index]), numbers[1]])
    places = emit("Concat", [emit("Unsqueeze", [value, emit.ints([1])]) for value in (index, rows)], {"axis": 1})
    return emit("GatherND", [stacked, places])


RULES = {
    "slice": slice_, "strided_slice": strided_slice, "gather": gather, "index_select": index_select,
    "gather_nd": gather_nd, "index_sample": index_sample, "take_along_axis": take_along_axis,
    "embedding": embedding, "where": where, "nonzero": nonzero, "masked_select": masked_select,
    "masked_fill": masked_fill, "multiplex": multiplex,
}  # fmt: skip
