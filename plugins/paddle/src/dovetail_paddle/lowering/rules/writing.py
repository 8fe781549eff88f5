"""Rules that write elements of tensors: at slices, at indices, and along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_int64, as_list, int_list, joined, shape_of, stepped_bounds

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


_LARGE = (1 << 31) - 1


def scatter(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Overwrite rows, or replace them by sums of the updates."""
    index = as_list(op.operand("index"), emit)
    index = emit("Unsqueeze", [index, emit.ints([1])])
    data, updates = op["x"], op["updates"]
    if op.attr("overwrite"):
        return emit("ScatterND", [data, index, updates])
    zeros = emit("Sub", [updates, updates])
    cleared = emit("ScatterND", [data, index, zeros])
    return emit("ScatterND", [cleared, index, updates], {"reduction": "add"})


def scatter_nd_add(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Add slices at indices of the first axes."""
    index = as_int64(op.operand("index"), emit)
    return emit("ScatterND", [op["x"], index, op["updates"]], {"reduction": "add"})


def put_along_axis(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Write elements along an axis, or reduce them with the existing ones, which may be excluded."""
    import numpy as np

    kinds = {"assign": None, "add": "add", "multiply": "mul", "mul": "mul", "amin": "min", "amax": "max"}
    kind, dtype = op.attr("reduce"), op.dtype("arr")
    if kind not in kinds:
        raise OpNotLowered(f"it reduces by '{kind}'")
    reduction = kinds[kind]
    data, indices, values = op["arr"], op["indices"], op["values"]
    if op.shape("values") != op.shape("indices"):
        values = emit("Expand", [values, shape_of(op, "indices", emit)])
    if reduction is not None and not op.attr("include_self"):
        limits = (np.iinfo if dtype.is_integer() else np.finfo)(dtype.numpy())
        start = {"add": 0, "mul": 1, "min": limits.max, "max": limits.min}[reduction]
        neutral = emit("Expand", [emit.scalar(start, dtype), shape_of(op, "indices", emit)])
        data = emit("ScatterElements", [data, indices, neutral], {"axis": op.attr("axis")})
    return emit("ScatterElements", [data, indices, values], {"axis": op.attr("axis"), "reduction": reduction})


def index_put(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Write or add values at indices of the first axes, or where a mask is true."""
    import onnx_ir as ir

    originals, shape = op.originals("indices"), op.shape("x")
    shapes = [value.shape for value in originals if value.shape is not None]
    if not originals or shape is None or len(shapes) < len(originals):
        raise OpNotLowered("the rank of its input or of its indices is not known")
    ranks = list(map(len, shapes))
    if any(value.dtype == ir.DataType.BOOL for value in originals):
        if len(originals) > 1:
            raise OpNotLowered("its indices are a mask and something else")
        index, first, rows = (
            emit("Transpose", [emit("NonZero", [op.items("indices")[0]])], {"perm": [1, 0]}),
            ranks[0],
            1,
        )
    else:
        items = [as_int64(value, emit) for value in originals]
        if len(set(map(tuple, shapes))) > 1:
            items = [_broadcast(item, items, emit) for item in items]
        columns = [emit("Unsqueeze", [item, emit.ints([-1])]) for item in items]
        index = columns[0] if len(columns) == 1 else emit("Concat", columns, {"axis": -1})
        first, rows = len(originals), max(ranks)
    wanted = joined([emit("Shape", [index], {"end": rows}), shape_of(op, "x", emit, first, len(shape))], emit)
    values = emit("Expand", [op["value"], wanted])
    return emit("ScatterND", [op["x"], index, values], {"reduction": "add" if op.attr("accumulate") else None})


def _broadcast(value: ir.Value, others: list[ir.Value], emit: GraphEmitter) -> ir.Value:
    """Broadcast a tensor to the common shape of several tensors."""
    for other in others:
        if other is not value:
            value = emit("Expand", [value, emit("Shape", [other])])
    return value


def index_add(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Add slices along an axis."""
    axis, rank = op.axis(op.attr("axis"), "x"), op.rank("x")
    form = emit.ints([-1 if at == axis else 1 for at in range(rank)])
    index = emit("Reshape", [as_int64(op.operand("index"), emit), form])
    index = emit("Expand", [index, shape_of(op, "add_value", emit)])
    return emit("ScatterElements", [op["x"], index, op["add_value"]], {"axis": axis, "reduction": "add"})


def set_value(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Write a constant to a slice; if extents are known, a mask selects the elements."""
    import numpy as np

    shape, dtype = op.shape("x"), op.dtype("x")
    values = np.array(op.attr("values"), dtype.numpy()).reshape(op.attr("shape") or ())
    bounds = [found for name in ("starts", "ends", "steps") if (found := op.known_ints(name)) is not None]
    axes = [] if shape is None else [op.axis(axis, "x") for axis in op.attr("axes")]
    extents = {} if shape is None else {axis: extent for axis in axes if (extent := shape[axis]) is not None}
    unknown = len(bounds) < 3 or not extents.keys() >= set(axes)
    if shape is None or unknown or values.size > 1 or op.attr("none_axes"):
        return _written(op, emit.constant(values), emit)
    index: list[slice] = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, *bounds, strict=True):
        before = step < 0 and (end == -1 or end < -extents[axis])  # the end is before the first element
        index[axis] = slice(start, None if end >= _LARGE or before else end, step)
    mask = np.zeros([extents.get(axis, 1) for axis in range(len(shape))], np.bool_)
    mask[tuple(index)] = True
    return emit("Where", [emit.constant(mask), emit.constant(values.reshape(())), op["x"]])


def set_value_with_tensor(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Write a tensor to a slice."""
    value = op["values"]
    return _written(op, value if op.dtype("values") == op.dtype("x") else emit.cast(value, op.dtype("x")), emit)


def _written(op: PdOp, values: ir.Value, emit: GraphEmitter) -> ir.Value:
    """Write values to a slice, by slicing the element indices in the same way."""
    import numpy as np

    shape = op.known_shape("x")
    if op.shape("x") is None:
        raise OpNotLowered("the rank of its input is not known")
    axes = [op.axis(axis, "x") for axis in op.attr("axes")]
    if shape is None:
        extents = shape_of(op, "x", emit)
        numbers = [emit.constant(np.array(number, np.int64)) for number in (0, 1)]
        places = emit("Range", [numbers[0], emit("Size", [op["x"]]), numbers[1]])
        places = emit("Reshape", [places, extents])
    else:
        places = emit.constant(np.arange(np.prod(shape, dtype=np.int64)).reshape(shape))
    if axes:
        bounds = stepped_bounds(op, op.known_ints("steps"), emit)
        places = emit("Slice", [places, *bounds, emit.ints(axes), int_list(op, "steps", emit)])
    if dropped := [op.axis(axis, "x") for axis in op.attr("decrease_axes")]:
        places = emit("Squeeze", [places, emit.ints(dropped)])
    if added := op.attr("none_axes"):
        places = emit("Unsqueeze", [places, emit.ints(added)])
    flat = emit.ints([-1])
    updates = emit("Reshape", [emit("Expand", [values, emit("Shape", [places])]), flat])
    made = emit("ScatterElements", [emit("Reshape", [op["x"], flat]), emit("Reshape", [places, flat]), updates])
    return emit("Reshape", [made, shape_of(op, "x", emit)])


RULES = {
    "scatter": scatter, "scatter_nd_add": scatter_nd_add, "put_along_axis": put_along_axis, "index_put": index_put,
    "index_add": index_add, "set_value": set_value, "set_value_with_tensor": set_value_with_tensor,
}  # fmt: skip
