"""Extents: constants if known, values if computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import PdOp, constant_of, extents
from dovetail_paddle.pd_graph import operands

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


_END = (1 << 63) - 1
_LARGE = (1 << 31) - 1


def as_int64(value: ir.Value, emit: GraphEmitter) -> ir.Value:
    """Return the lowered value of an integer as int64."""
    import onnx_ir as ir

    known = constant_of(value)
    if known is not None:
        return emit.constant(known.astype("int64"))
    lowered = emit.lowered(value)
    if value.dtype == ir.DataType.INT64:
        return lowered
    wide = emit.wide(lowered)
    return wide if wide is not None else emit.cast(lowered, ir.DataType.INT64)


def as_list(value: ir.Value, emit: GraphEmitter) -> ir.Value:
    """Convert an integer to a single-element int64 list; lists are unchanged."""
    known = constant_of(value)
    if known is not None:
        return emit.ints([int(item) for item in known.reshape(-1)])
    lowered = as_int64(value, emit)
    return (
        lowered
        if (shape := extents(value)) is not None and len(shape) == 1
        else emit("Reshape", [lowered, emit.ints([-1])])
    )


def int_list(op: PdOp, argument: str, emit: GraphEmitter) -> ir.Value:
    """Return an integer list operand, or a list of single-element tensors, as one int64 list."""
    value = op.operand(argument)
    producer = value.producer()
    if constant_of(value) is None and producer is not None and producer.op_type == "combine":
        return joined([as_list(item, emit) for item in operands(producer)], emit)
    return as_list(value, emit)


def joined(parts: Sequence[ir.Value], emit: GraphEmitter) -> ir.Value:
    """Concatenate lists; adjacent constants are merged."""
    merged: list[ir.Value] = []
    known: list[int] = []
    for part in parts:
        if part.const_value is not None:
            known += part.const_value.numpy().reshape(-1).tolist()
            continue
        if known:
            merged.append(emit.ints(known))
            known = []
        merged.append(part)
    if known:
        merged.append(emit.ints(known))
    return merged[0] if len(merged) == 1 else emit("Concat", merged, {"axis": 0})


def shape_of(op: PdOp, argument: str, emit: GraphEmitter, start: int = 0, end: int | None = None) -> ir.Value:
    """Return a range of an operand's extents as an int64 list."""
    known = op.known_shape(argument, start, end)
    if known is not None:
        return emit.ints(known)
    return emit("Shape", [op[argument]], {"start": start or None, "end": end})


def extent(op: PdOp, argument: str, axis: int, emit: GraphEmitter) -> ir.Value:
    """Return one extent of an operand as a single-element int64 list."""
    axis = op.axis(axis, argument)
    return shape_of(op, argument, emit, axis, axis + 1)


def stepped_bounds(op: PdOp, steps: Sequence[int] | None, emit: GraphEmitter) -> list[ir.Value]:
    """Return the starts and ends of a slice with steps.

    Numbers beyond 32 bits are beyond the axis. With a negative step, an end of -1 is before the first element, not the
    last element.
    """
    bounds = []
    for name in ("starts", "ends"):
        known = op.known_ints(name)
        if known is None:
            bounds.append(int_list(op, name, emit))
            continue
        known = [_END if bound >= _LARGE else -_END if bound <= -_LARGE else bound for bound in known]
        if name == "ends" and steps is not None:
            known = [-_END if end == -1 and step < 0 else end for end, step in zip(known, steps, strict=True)]
        bounds.append(emit.ints(known))
    return bounds


def as_rank(value: ir.Value, have: int, wanted: Sequence[int | None] | None, emit: GraphEmitter) -> ir.Value:
    """Convert between a scalar and the single-element list that older programs declare for it."""
    if wanted is None or len(wanted) == have:
        return value
    if have == 0 and len(wanted) == 1:
        return emit("Reshape", [value, emit.ints([1])])
    if have == 1 and len(wanted) == 0:
        return emit("Reshape", [value, emit.ints([])])
    return value
