"""Slices, look-ups and scattering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import NotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_int64, as_list, int_list, joined, shape_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter

__all__ = ["RULES"]

_END = (1 << 63) - 1
_LARGE = (1 << 31) - 1


def slice_(op: PdOp, emit: Emitter) -> ir.Value:
    """A slice, without the axes that are indexed by a number; extents that were narrowed stay int64."""
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
        dropped = dropped[1:]  # older programs have no tensor without axes
    if dropped:
        made = emit("Squeeze", [made, emit.ints(dropped)])
    return made if wide is None else emit.narrow(made, op.result_dtype())


def strided_slice(op: PdOp, emit: Emitter) -> ir.Value:
    """A slice with steps."""
    bounds = []
    for name in ("starts", "ends"):
        known = op.known_ints(name)
        if known is not None:
            known = [_END if bound >= _LARGE else -_END if bound <= -_LARGE else bound for bound in known]
        bounds.append(emit.ints(known) if known is not None else int_list(op, name, emit))
    return emit("Slice", [op["x"], *bounds, emit.ints(op.attr("axes")), int_list(op, "strides", emit)])


def _index_list(op: PdOp, argument: str, emit: Emitter) -> ir.Value:
    """Indices that are a list, a scalar, or a column."""
    shape = op.shape(argument)
    value = op[argument]
    return emit("Reshape", [value, emit.ints([-1])]) if shape is not None and len(shape) == 2 else value


def gather(op: PdOp, emit: Emitter) -> ir.Value:
    """Slices by their indices."""
    axis = 0 if op.original("axis") is None else int(op.number("axis"))
    return emit("Gather", [op["x"], _index_list(op, "index", emit)], {"axis": axis})


def index_select(op: PdOp, emit: Emitter) -> ir.Value:
    """Slices by their indices along an axis."""
    return emit("Gather", [op["x"], op["index"]], {"axis": op.attr("axis")})


def gather_nd(op: PdOp, emit: Emitter) -> ir.Value:
    """Elements or slices by the indices of their first axes."""
    return emit("GatherND", [op["x"], as_int64(op.original("index"), emit)])


def index_sample(op: PdOp, emit: Emitter) -> ir.Value:
    """Elements of each row."""
    return emit("GatherElements", [op["x"], op["index"]], {"axis": 1})


def take_along_axis(op: PdOp, emit: Emitter) -> ir.Value:
    """Elements along an axis; the other extents are broadcast."""
    data, index, axis = op["arr"], op["indices"], op.axis(op.attr("axis"), "arr")
    first, second = op.shape("arr"), op.shape("indices")
    if first is None or second is None or len(first) != len(second):
        raise NotLowered("the ranks of its operands are not known, or differ")
    for at, (have, wanted) in enumerate(zip(first, second, strict=True)):
        if at != axis and have is not None and wanted is not None and have != wanted and 1 not in (have, wanted):
            continue
        if at != axis and have == 1 and wanted != 1:
            data = emit("Expand", [data, _one_axis(second, at, emit)]) if wanted else data
        elif at != axis and wanted == 1 and have not in (1, None):
            index = emit("Expand", [index, _one_axis(first, at, emit)])
    return emit("GatherElements", [data, index], {"axis": axis})


def _one_axis(shape: tuple[int | None, ...], axis: int, emit: Emitter) -> ir.Value:
    return emit.ints([extent if at == axis else 1 for at, extent in enumerate(shape)])


def put_along_axis(op: PdOp, emit: Emitter) -> ir.Value:
    """Elements written along an axis."""
    reduce = {"assign": None, "add": "add", "multiply": "mul", "mul": "mul", "amin": "min", "amax": "max"}
    kind = op.attr("reduce")
    if kind not in reduce or not op.attr("include_self"):
        raise NotLowered(f"it reduces by '{kind}' without the elements that are there")
    values = op["values"]
    if op.shape("values") != op.shape("indices"):
        values = emit("Expand", [values, shape_of(op, "indices", emit)])
    attributes = {"axis": op.attr("axis"), "reduction": reduce[kind]}
    return emit("ScatterElements", [op["arr"], op["indices"], values], attributes)


def scatter(op: PdOp, emit: Emitter) -> ir.Value:
    """Rows written, or added to zeros in their place."""
    index = as_list(op.original("index"), emit)
    index = emit("Unsqueeze", [index, emit.ints([1])])
    data, updates = op["x"], op["updates"]
    if op.attr("overwrite"):
        return emit("ScatterND", [data, index, updates])
    zeros = emit("Sub", [updates, updates])
    cleared = emit("ScatterND", [data, index, zeros])
    return emit("ScatterND", [cleared, index, updates], {"reduction": "add"})


def scatter_nd_add(op: PdOp, emit: Emitter) -> ir.Value:
    """Slices added at the indices of their first axes."""
    index = as_int64(op.original("index"), emit)
    return emit("ScatterND", [op["x"], index, op["updates"]], {"reduction": "add"})


def embedding(op: PdOp, emit: Emitter) -> ir.Value:
    """Rows of a table; those of one index count as zeros."""
    import numpy as np

    rows = emit("Gather", [op["weight"], op["x"]])
    index = op.attr("padding_idx")
    table = op.constant("weight")
    if index < 0 or (table is not None and not table[index].astype(np.float32).any()):
        return rows
    hidden = emit("Equal", [as_int64(op.original("x"), emit), emit.constant(np.array(index, np.int64))])
    hidden = emit("Unsqueeze", [hidden, emit.ints([-1])])
    return emit("Where", [hidden, emit.scalar(0, op.dtype("weight")), rows])


def where(op: PdOp, emit: Emitter) -> ir.Value:
    """Elements of one tensor or of another."""
    return emit("Where", [op["condition"], op["x"], op["y"]])


def nonzero(op: PdOp, emit: Emitter) -> ir.Value:
    """The indices of what is not zero, one row each."""
    return emit("Transpose", [emit("NonZero", [op["condition"]])], {"perm": [1, 0]})


def masked_select(op: PdOp, emit: Emitter) -> ir.Value:
    """The elements where a mask is true, as a list."""
    mask = op["mask"]
    if op.shape("mask") != op.shape("x") or None in (op.shape("x") or (None,)):
        mask = emit("Expand", [mask, shape_of(op, "x", emit)])
    flat = [emit("Reshape", [value, emit.ints([-1])]) for value in (op["x"], mask)]
    return emit("Compress", flat, {"axis": 0})


def masked_fill(op: PdOp, emit: Emitter) -> ir.Value:
    """A value where a mask is true."""
    return emit("Where", [op["mask"], op["value"], op["x"]])


def index_put(op: PdOp, emit: Emitter) -> ir.Value:
    """Values written, or added, at the indices of the first axes."""
    import onnx_ir as ir

    originals = op.originals("indices")
    if not originals or any(value.dtype == ir.DataType.BOOL or value.shape is None for value in originals):
        raise NotLowered("its indices are a mask, or of an unknown rank")
    if len({len(value.shape) for value in originals}) > 1:
        raise NotLowered("its indices are of different ranks")
    columns = [emit("Unsqueeze", [as_int64(value, emit), emit.ints([-1])]) for value in originals]
    index = columns[0] if len(columns) == 1 else emit("Concat", columns, {"axis": -1})
    shape, rank = op.shape("x"), len(originals[0].shape)
    rest = shape_of(op, "x", emit, len(originals), len(shape)) if shape is not None else None
    if rest is None:
        raise NotLowered("the rank of its input is not known")
    rows = emit("Shape", [index], {"end": rank})
    values = emit("Expand", [op["value"], joined([rows, rest], emit)])
    return emit("ScatterND", [op["x"], index, values], {"reduction": "add" if op.attr("accumulate") else None})


def index_add(op: PdOp, emit: Emitter) -> ir.Value:
    """Slices added along an axis."""
    axis, rank = op.axis(op.attr("axis"), "x"), op.rank("x")
    form = emit.ints([-1 if at == axis else 1 for at in range(rank)])
    index = emit("Reshape", [as_int64(op.original("index"), emit), form])
    index = emit("Expand", [index, shape_of(op, "add_value", emit)])
    return emit("ScatterElements", [op["x"], index, op["add_value"]], {"axis": axis, "reduction": "add"})


def set_value(op: PdOp, emit: Emitter) -> ir.Value:
    """A constant written to a slice: elements are chosen by a mask of the same extents."""
    import numpy as np

    shape, dtype = op.shape("x"), op.dtype("x")
    if shape is None:
        raise NotLowered("the rank of its input is not known")
    axes = [op.axis(axis, "x") for axis in op.attr("axes")]
    if any(shape[axis] is None for axis in axes) or op.attr("none_axes"):
        raise NotLowered("it writes along an axis whose extent is open")
    starts, ends, steps = (op.ints(name) for name in ("starts", "ends", "steps"))
    index: list[slice] = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, None if end >= _LARGE else end, step)
    small = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
    mask = np.zeros(small, bool)
    mask[tuple(index)] = True
    values = np.array(op.attr("values"), dtype.numpy()).reshape(op.attr("shape") or ())
    if values.size == 1:
        filled = emit.constant(values.reshape(()))
    else:
        content = np.zeros([shape[axis] or 1 for axis in range(len(shape))], dtype.numpy())
        if None in shape:
            raise NotLowered("it writes several values to an input with open extents")
        content[tuple(index)] = values.reshape(content[tuple(index)].shape)
        filled = emit.constant(content)
    return emit("Where", [emit.constant(mask), filled, op["x"]])


RULES = {
    "slice": slice_, "strided_slice": strided_slice, "gather": gather, "index_select": index_select,
    "gather_nd": gather_nd, "index_sample": index_sample, "take_along_axis": take_along_axis,
    "put_along_axis": put_along_axis, "scatter": scatter, "scatter_nd_add": scatter_nd_add, "embedding": embedding,
    "where": where, "nonzero": nonzero, "masked_select": masked_select, "set_value": set_value,
    "masked_fill": masked_fill, "index_put": index_put, "index_add": index_add,
}  # fmt: skip
