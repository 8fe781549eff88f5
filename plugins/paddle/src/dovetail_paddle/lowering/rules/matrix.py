"""Diagonals, and products of matrices other than the usual one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dovetail_paddle.lowering.op import NotLowered, PdOp
from dovetail_paddle.lowering.shapes import joined, shape_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter


def diagonal(op: PdOp, emit: Emitter) -> ir.Value:
    """The diagonal of two axes as the last one."""
    first, second = (op.axis(op.attr(name), "x") for name in ("axis1", "axis2"))
    shape = op.ranked_shape("x")
    rows, columns = shape[first], shape[second]
    if rows is None or columns is None:
        raise NotLowered("the extents of its matrices are open")
    others = [at for at in range(len(shape)) if at not in (first, second)]
    order = [*others, first, second]
    value = op["x"] if order == sorted(order) else emit("Transpose", [op["x"]], {"perm": order})
    value = emit("Reshape", [value, emit.ints([*[0] * len(others), -1])])
    offset = op.attr("offset")
    places = [row * columns + row + offset for row in range(rows) if 0 <= row + offset < columns]
    return emit("Gather", [value, emit.ints(places)], {"axis": len(others)})


def trace(op: PdOp, emit: Emitter) -> ir.Value:
    """The sum of a diagonal."""
    return emit("ReduceSum", [diagonal(op, emit), emit.ints([-1])], {"keepdims": 0})


def _embedded(op: PdOp, argument: str, offset: int, rest: float, emit: Emitter) -> ir.Value:
    """Matrices with the last axis as their diagonal."""
    import numpy as np

    extent = op.ranked_shape(argument)[-1]
    if extent is None:
        raise NotLowered("the extent of the diagonal is open")
    size, value = extent + abs(offset), op[argument]
    if offset:
        pads = [0] * (2 * op.rank(argument))
        pads[-1] = abs(offset)
        value = emit("Pad", [value, emit.ints(pads)])
    # Elements are numbered by their row above the diagonal, by their column below it.
    value = emit("Unsqueeze", [value, emit.ints([-1 if offset >= 0 else -2])])
    mask = emit.constant(np.eye(size, k=offset, dtype=bool))
    return emit("Where", [mask, value, emit.scalar(rest, op.dtype(argument))])


def diag(op: PdOp, emit: Emitter) -> ir.Value:
    """The diagonal of a matrix, or a matrix with a diagonal."""
    offset = op.attr("offset")
    if op.rank("x") == 1:
        return _embedded(op, "x", offset, op.attr("padding_value"), emit)
    rows, columns = op.ranked_shape("x")
    if rows is None or columns is None:
        raise NotLowered("the extents of its matrix are open")
    places = [row * columns + row + offset for row in range(rows) if 0 <= row + offset < columns]
    return emit("Gather", [emit("Reshape", [op["x"], emit.ints([-1])]), emit.ints(places)])


def diag_embed(op: PdOp, emit: Emitter) -> ir.Value:
    """Matrices with the last axis as their diagonal, over two axes of the result."""
    value, rank = _embedded(op, "input", op.attr("offset"), 0, emit), op.rank("input") + 1
    first, second = (op.attr(name) % rank for name in ("dim1", "dim2"))
    others = iter(range(rank - 2))
    perm = [rank - 2 if at == first else rank - 1 if at == second else next(others) for at in range(rank)]
    return value if perm == sorted(perm) else emit("Transpose", [value], {"perm": perm})


def kron(op: PdOp, emit: Emitter) -> ir.Value:
    """Every element of one tensor times the whole other one."""
    rank = max(op.rank("x"), op.rank("y"))
    values, extents = [], []
    for name in ("x", "y"):
        missing = rank - op.rank(name)
        value = op[name] if not missing else emit("Unsqueeze", [op[name], emit.ints(range(missing))])
        extents.append(joined([emit.ints([1] * missing), shape_of(op, name, emit)], emit))
        axes = [2 * axis + (name == "x") for axis in range(rank)]
        values.append(emit("Unsqueeze", [value, emit.ints(axes)]))
    return emit("Reshape", [emit("Mul", values), emit("Mul", extents)])


def cross(op: PdOp, emit: Emitter) -> ir.Value:
    """The vector product along an axis of extent 3; axis 9 stands for the first such."""
    axis = op.attr("axis")
    if axis == 9:
        axis = op.ranked_shape("x").index(3)
    x, y = (
        [emit("Gather", [op[name], emit.ints(turn)], {"axis": axis}) for turn in ((1, 2, 0), (2, 0, 1))]
        for name in "xy"
    )
    return emit("Sub", [emit("Mul", [x[0], y[1]]), emit("Mul", [x[1], y[0]])])


def multi_dot(op: PdOp, emit: Emitter) -> ir.Value:
    """The product of several matrices, from the left."""
    value, *others = op.items("x")
    for other in others:
        value = emit("MatMul", [value, other])
    return value


def matrix_power(op: PdOp, emit: Emitter) -> ir.Value:
    """A positive power, by squaring."""
    power, square = op.attr("n"), op["x"]
    made: ir.Value | None = None
    if power < 1:
        raise NotLowered(f"its power is {power}, and ONNX inverts no matrices")
    while True:
        if power & 1:
            made = square if made is None else emit("MatMul", [made, square])
        power >>= 1
        if not power:
            return cast("ir.Value", made)
        square = emit("MatMul", [square, square])


def bilinear(op: PdOp, emit: Emitter) -> ir.Value:
    """`x * weight * y` for each matrix of the weight."""
    made = emit("Einsum", [op["x"], op["weight"], op["y"]], {"equation": "bi,oij,bj->bo"})
    bias = op.get("bias")
    return made if bias is None else emit("Add", [made, bias])


def det(op: PdOp, emit: Emitter) -> ir.Value:
    """The determinant."""
    return emit("Det", [op["x"]])


RULES = {
    "diagonal": diagonal, "trace": trace, "diag": diag, "diag_embed": diag_embed, "kron": kron, "cross": cross,
    "multi_dot": multi_dot, "matrix_power": matrix_power, "bilinear": bilinear, "det": det,
}  # fmt: skip
