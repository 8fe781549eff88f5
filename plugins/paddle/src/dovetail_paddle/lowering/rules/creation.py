"""Rules that create tensors from extents and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.lowering.op import OpNotLowered, PdOp, check_size
from dovetail_paddle.lowering.shapes import as_int64, as_list, int_list, shape_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter
    from dovetail_paddle.lowering.rules import Rule


def _filled(shape: ir.Value, number: float, dtype: ir.DataType, emit: GraphEmitter) -> ir.Value:
    """Create a tensor filled with one number."""
    import numpy as np

    content = np.array([number]).astype(dtype.numpy())
    if shape.const_value is not None:
        check_size(*shape.const_value.numpy().tolist())
        return emit.constant(np.full(tuple(shape.const_value.numpy().tolist()), content[0], dtype.numpy()))
    return emit("ConstantOfShape", [shape], {"value": content})


def _type(op: PdOp, name: str = "dtype") -> ir.DataType:
    found = onnx_type(op.attr(name)) or op.result_dtype()
    if found is None:
        raise OpNotLowered("the element type of its result is not known")
    return found


def full_like(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Fill a tensor of another tensor's shape."""
    dtype = onnx_type(op.attr("dtype")) or op.dtype("x")
    return _filled(shape_of(op, "x", emit), op.number("value"), dtype, emit)


def full_with_tensor(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Fill a tensor of computed shape."""
    dtype, known = _type(op), op.constant("value")
    shape = int_list(op, "shape", emit)
    if known is not None:
        return _filled(shape, known.reshape(-1)[0].item(), dtype, emit)
    value = op["value"]
    if op.operand("value").dtype != dtype:
        value = emit.cast(value, dtype)
    return emit("Expand", [value, shape])


def empty(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Create a tensor of arbitrary content: zeros."""
    return _filled(int_list(op, "shape", emit), 0, _type(op), emit)


def full_batch_size_like(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Fill a tensor of given shape, with one extent taken from another tensor."""
    from dovetail_paddle.lowering.shapes import extent, joined

    wanted, at = list(op.attr("shape")), op.attr("output_dim_idx")
    parts = [
        emit.ints(wanted[:at]), extent(op, "input", op.attr("input_dim_idx"), emit), emit.ints(wanted[at + 1 :]),
    ]  # fmt: skip
    return _filled(joined(parts, emit), op.attr("value"), _type(op), emit)


def arange(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Create a range of equidistant numbers."""
    import numpy as np

    dtype = op.result_dtype() or _type(op)
    known = [op.constant(name) for name in ("start", "end", "step")]
    numbers = [item.reshape(-1)[0] for item in known if item is not None]
    if len(numbers) == 3:
        first, last, step = (number.item() for number in numbers)
        check_size(max((last - first) / step, 0))
        return emit.constant(np.arange(*numbers).astype(dtype.numpy()))
    operands = []
    for name, item in zip(("start", "end", "step"), known, strict=True):
        if item is not None:
            operands.append(emit.scalar(item.reshape(-1)[0], dtype))
            continue
        value = op[name]
        if op.operand(name).dtype != dtype:
            wide = emit.wide(value)
            value = wide if wide is not None and dtype.name == "INT64" else emit.cast(value, dtype)
        operands.append(value if op.shape(name) == () else emit("Reshape", [value, emit.ints([])]))
    return emit("Range", operands)


def eye(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Create an identity matrix."""
    import numpy as np

    if op.constant("num_rows") is None or op.constant("num_columns") is None:
        return _computed_eye(op, emit)
    rows, columns = int(op.number("num_rows")), int(op.number("num_columns"))
    check_size(rows, max(columns, 1))
    return emit.constant(np.eye(rows, columns if columns > 0 else rows, dtype=_type(op).numpy()))


def _numbers(count: ir.Value, emit: GraphEmitter) -> ir.Value:
    import numpy as np

    first, step = (emit.constant(np.array(number, np.int64)) for number in (0, 1))
    return emit("Range", [first, emit("Reshape", [count, emit.ints([])]), step])


def _computed_eye(op: PdOp, emit: GraphEmitter) -> ir.Value:
    import numpy as np

    rows = as_list(op.operand("num_rows"), emit)
    columns = as_list(op.operand("num_columns"), emit)
    columns = emit("Where", [emit("Less", [columns, emit.constant(np.array(0, np.int64))]), rows, columns])
    same = emit("Equal", [emit("Unsqueeze", [_numbers(rows, emit), emit.ints([1])]), _numbers(columns, emit)])
    return emit.cast(same, _type(op))


def linspace(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Create a number of equidistant values, including both ends."""
    import numpy as np

    if any(op.constant(name) is None for name in ("start", "stop", "number")):
        return _computed_linspace(op, emit)
    start, stop, number = (op.number(name) for name in ("start", "stop", "number"))
    check_size(number)
    return emit.constant(np.linspace(start, stop, int(number)).astype(_type(op).numpy()))


def _computed_linspace(op: PdOp, emit: GraphEmitter) -> ir.Value:
    dtype = _type(op)
    ends = []
    for name in ("start", "stop"):
        value = op[name] if op.dtype(name) == dtype else emit.cast(op[name], dtype)
        ends.append(value if op.shape(name) == () else emit("Reshape", [value, emit.ints([])]))
    count = as_list(op.operand("number"), emit)
    places = emit.cast(_numbers(count, emit), dtype)
    last = emit("Max", [emit("Sub", [count, emit.ints([1])]), emit.ints([1])])
    share = emit("Div", [places, emit.cast(last, dtype)])
    return emit("Add", [ends[0], emit("Mul", [emit("Sub", [ends[1], ends[0]]), share])])


def logspace(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Create powers of a base with equidistant exponents."""
    import numpy as np

    start, stop, number, base = (op.number(name) for name in ("start", "stop", "num", "base"))
    check_size(number)
    return emit.constant(np.power(base, np.linspace(start, stop, int(number))).astype(_type(op).numpy()))


def triangle_indices(upper: bool) -> Rule:
    """Create the rule for the indices of a triangle of a matrix."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        import numpy as np

        extents = [op.attr(name) for name in (("row", "col") if upper else ("rows", "cols"))]
        check_size(*extents)
        found = (np.triu if upper else np.tril)(np.ones(extents), op.attr("offset")).nonzero()
        return emit.constant(np.stack(found).astype(_type(op).numpy()))

    return rule


def sequence_mask(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Create a mask of ones up to each length."""
    import numpy as np

    lengths = as_int64(op.operand("x"), emit)
    known = op.constant("max_len")
    if known is not None and known.reshape(-1)[0] > 0:
        check_size(int(known.reshape(-1)[0]))
        numbers = emit.constant(np.arange(int(known.reshape(-1)[0])))
    elif known is not None:  # the length of the longest sequence
        numbers = _numbers(emit("ReduceMax", [lengths], {"keepdims": 0}), emit)
    else:
        numbers = _numbers(as_list(op.operand("max_len"), emit), emit)
    inside = emit("Less", [numbers, emit("Unsqueeze", [lengths, emit.ints([-1])])])
    return emit.cast(inside, _type(op, "out_dtype"))


RULES = {
    "full_like": full_like, "full_with_tensor": full_with_tensor, "full_batch_size_like": full_batch_size_like,
    "arange": arange, "eye": eye, "empty": empty, "linspace": linspace, "tril_indices": triangle_indices(False),
    "triu_indices": triangle_indices(True), "sequence_mask": sequence_mask, "logspace": logspace,
}  # fmt: skip
