"""Rules for matrix products and diagonals."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_rank, joined, shape_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


def _turned(op: PdOp, argument: str, turned: bool, emit: GraphEmitter) -> ir.Value:
    value = op[argument]
    if not turned or op.rank(argument) < 2:
        return value
    axes = list(range(op.rank(argument)))
    return emit("Transpose", [value], {"perm": [*axes[:-2], axes[-1], axes[-2]]})


def matmul(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Multiply matrices, each optionally transposed."""
    operands = [_turned(op, name, op.attr(f"transpose_{name}"), emit) for name in ("x", "y")]
    made = emit("MatMul", operands)
    both_lists = op.shape("x") is not None and op.shape("y") is not None and op.rank("x") == op.rank("y") == 1
    return as_rank(made, 0, op.result_shape(), emit) if both_lists else made


def legacy_matmul(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Multiply matrices as older programs do: the result is scaled."""
    made, alpha = matmul(op, emit), op.attr("alpha")
    return made if alpha == 1 else emit("Mul", [made, emit.scalar(alpha, op.dtype("x"))])


def product(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Multiply matrices with the semantics of ONNX."""
    second = op.operator.operands[1].name
    return emit("MatMul", [op["x"], op[second]])


def _flattened(op: PdOp, argument: str, axis: int, emit: GraphEmitter) -> ir.Value:
    return op[argument] if op.rank(argument) == 2 and axis == 1 else emit("Flatten", [op[argument]], {"axis": axis})


def _by_flattening(op: PdOp, first: str, columns: int, second: str, columns2: int, emit: GraphEmitter) -> ir.Value:
    """Multiply tensors flattened to matrices, whose first axes form the rows."""
    rank, rank2 = op.rank(first), op.rank(second)
    if rank - columns == 1 and rank2 == 2 and columns2 == 1:
        return emit("MatMul", [op[first], op[second]])
    x, y = _flattened(op, first, columns, emit), _flattened(op, second, columns2, emit)
    made = emit("MatMul", [x, y])
    if columns == 1 and rank2 - columns2 == 1:
        return made
    parts = [shape_of(op, first, emit, 0, columns), shape_of(op, second, emit, columns2, rank2)]
    return emit("Reshape", [made, joined(parts, emit)])


def matmul_with_flatten(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Multiply tensors flattened to matrices."""
    return _by_flattening(op, "x", op.attr("x_num_col_dims"), "y", op.attr("y_num_col_dims"), emit)


def fc(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute a fully connected layer with its activation."""
    made = _by_flattening(op, "input", op.attr("in_num_col_dims"), "w", 1, emit)
    if op.original("bias") is not None:
        made = emit("Add", [made, op["bias"]])
    activation = op.attr("activation_type")
    if activation not in ("", "relu"):
        raise OpNotLowered(f"its activation '{activation}' is not supported")
    return emit("Relu", [made]) if activation else made


def addmm(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `alpha * x @ y + beta * input`."""
    attributes = {"alpha": float(op.attr("alpha")), "beta": float(op.attr("beta"))}
    return emit("Gemm", [op["x"], op["y"], op["input"]], attributes)


def dot(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute inner products row by row."""

    result = op.result_shape()
    keep = result is not None and len(result) == op.rank("x")
    multiplied = emit("Mul", [op["x"], op["y"]])
    return emit("ReduceSum", [multiplied, emit.ints([-1])], {"keepdims": int(keep)})


def einsum(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None, None]:
    """Compute a sum of products from an equation."""
    return emit("Einsum", op.items("x"), {"equation": op.attr("equation")}), None, None


def baddbmm(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `alpha * x @ y + beta * input` for batches of matrices."""
    made, added, dtype = emit("MatMul", [op["x"], op["y"]]), op["input"], op.dtype("x")
    if op.attr("alpha") != 1:
        made = emit("Mul", [made, emit.scalar(op.attr("alpha"), dtype)])
    if op.attr("beta") != 1:
        added = emit("Mul", [added, emit.scalar(op.attr("beta"), dtype)])
    return emit("Add", [made, added])


def flash_attn(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None, None, None]:
    """Compute attention over [batch, step, head, feature]."""
    import numpy as np

    shape, dtype = op.shape("q"), op.dtype("q")
    if shape is None or shape[3] is None or op.attr("return_softmax"):
        raise OpNotLowered("the number of its features is open, or it returns its weights")
    q, k, v = (emit("Transpose", [op[name]], {"perm": [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]}) for name in "qkv")
    weights = emit("MatMul", [emit("Mul", [q, emit.scalar(shape[3] ** -0.5, dtype)]), k])
    if op.original("attn_mask") is not None:
        weights = emit("Add", [weights, op["attn_mask"]])
    if op.attr("causal"):
        steps, others = shape[1], op.ranked_shape("k")[1]
        if steps is None or others is None:
            raise OpNotLowered("it is causal, and the number of its steps is open")
        hidden = np.triu(np.full((steps, others), -1e4, np.float32), 1 + others - steps)
        weights = emit("Add", [weights, emit.constant(hidden.astype(dtype.numpy()))])
    made = emit("MatMul", [emit("Softmax", [weights], {"axis": -1}), v])
    return emit("Transpose", [made], {"perm": [0, 2, 1, 3]}), None, None, None


def diagonal(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Extract the diagonal of two axes as the last axis."""
    first, second = (op.axis(op.attr(name), "x") for name in ("axis1", "axis2"))
    shape = op.ranked_shape("x")
    rows, columns = shape[first], shape[second]
    if rows is None or columns is None:
        raise OpNotLowered("the extents of its matrices are open")
    others = [at for at in range(len(shape)) if at not in (first, second)]
    order = [*others, first, second]
    value = op["x"] if order == sorted(order) else emit("Transpose", [op["x"]], {"perm": order})
    value = emit("Reshape", [value, emit.ints([*[0] * len(others), -1])])
    offset = op.attr("offset")
    places = [row * columns + row + offset for row in range(rows) if 0 <= row + offset < columns]
    return emit("Gather", [value, emit.ints(places)], {"axis": len(others)})


def trace(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Sum the diagonal."""
    return emit("ReduceSum", [diagonal(op, emit), emit.ints([-1])], {"keepdims": 0})


def _embedded(op: PdOp, argument: str, offset: int, rest: float, emit: GraphEmitter) -> ir.Value:
    """Create matrices with the last axis as their diagonal."""
    import numpy as np

    extent = op.ranked_shape(argument)[-1]
    if extent is None:
        raise OpNotLowered("the extent of the diagonal is open")
    size, value = extent + abs(offset), op[argument]
    if offset:
        pads = [0] * (2 * op.rank(argument))
        pads[-1] = abs(offset)
        value = emit("Pad", [value, emit.ints(pads)])
    # Elements are indexed by row above the diagonal, by column below it.
    value = emit("Unsqueeze", [value, emit.ints([-1 if offset >= 0 else -2])])
    mask = emit.constant(np.eye(size, k=offset, dtype=bool))
    return emit("Where", [mask, value, emit.scalar(rest, op.dtype(argument))])


def diag(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Extract the diagonal of a matrix, or create a matrix from a diagonal."""
    offset = op.attr("offset")
    if op.rank("x") == 1:
        return _embedded(op, "x", offset, op.attr("padding_value"), emit)
    rows, columns = op.ranked_shape("x")
    if rows is None or columns is None:
        raise OpNotLowered("the extents of its matrix are open")
    places = [row * columns + row + offset for row in range(rows) if 0 <= row + offset < columns]
    return emit("Gather", [emit("Reshape", [op["x"], emit.ints([-1])]), emit.ints(places)])


def diag_embed(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Create matrices with the last axis as their diagonal, over two axes of the result."""
    value, rank = _embedded(op, "input", op.attr("offset"), 0, emit), op.rank("input") + 1
    first, second = (op.attr(name) % rank for name in ("dim1", "dim2"))
    others = iter(range(rank - 2))
    perm = [rank - 2 if at == first else rank - 1 if at == second else next(others) for at in range(rank)]
    return value if perm == sorted(perm) else emit("Transpose", [value], {"perm": perm})


def kron(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the Kronecker product."""
    rank = max(op.rank("x"), op.rank("y"))
    values, extents = [], []
    for name in ("x", "y"):
        missing = rank - op.rank(name)
        value = op[name] if not missing else emit("Unsqueeze", [op[name], emit.ints(range(missing))])
        extents.append(joined([emit.ints([1] * missing), shape_of(op, name, emit)], emit))
        axes = [2 * axis + (name == "x") for axis in range(rank)]
        values.append(emit("Unsqueeze", [value, emit.ints(axes)]))
    return emit("Reshape", [emit("Mul", values), emit("Mul", extents)])


def cross(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the cross product along an axis of extent 3; axis 9 means the first such axis."""
    axis = op.attr("axis")
    if axis == 9:
        axis = op.ranked_shape("x").index(3)
    x, y = (
        [emit("Gather", [op[name], emit.ints(turn)], {"axis": axis}) for turn in ((1, 2, 0), (2, 0, 1))]
        for name in "xy"
    )
    return emit("Sub", [emit("Mul", [x[0], y[1]]), emit("Mul", [x[1], y[0]])])


def multi_dot(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Multiply several matrices from the left."""
    value, *others = op.items("x")
    for other in others:
        value = emit("MatMul", [value, other])
    return value


def matrix_power(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute a positive matrix power by squaring."""
    power, square = op.attr("n"), op["x"]
    made: ir.Value | None = None
    if power < 1:
        raise OpNotLowered(f"its power is {power}, and ONNX inverts no matrices")
    while True:
        if power & 1:
            made = square if made is None else emit("MatMul", [made, square])
        power >>= 1
        if not power:
            return cast("ir.Value", made)
        square = emit("MatMul", [square, square])


def bilinear(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `x * weight * y` for each matrix of the weight."""
    made = emit("Einsum", [op["x"], op["weight"], op["y"]], {"equation": "bi,oij,bj->bo"})
    bias = op.get("bias")
    return made if bias is None else emit("Add", [made, bias])


def det(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the determinant."""
    return emit("Det", [op["x"]])


RULES = {
    "matmul": matmul,
    "legacy_matmul": legacy_matmul,
    "bmm": product,
    "mv": product,
    "matmul_with_flatten": matmul_with_flatten,
    "fc": fc,
    "addmm": addmm,
    "dot": dot,
    "einsum": einsum,
    "baddbmm": baddbmm,
    "flash_attn": flash_attn,
    "diagonal": diagonal,
    "trace": trace,
    "diag": diag,
    "diag_embed": diag_embed,
    "kron": kron,
    "cross": cross,
    "multi_dot": multi_dot,
    "matrix_power": matrix_power,
    "bilinear": bilinear,
    "det": det,
}
