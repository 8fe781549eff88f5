"""Tensor arrays, which are sequences in ONNX, and the choice between values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.lowering.op import NotLowered, PdOp
from dovetail_paddle.lowering.shapes import as_int64, as_rank
from dovetail_paddle.pd_graph import operands

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter


def create_array(op: PdOp, emit: Emitter) -> ir.Value:
    """An empty array."""
    dtype = onnx_type(op.attr("dtype"))
    return emit("SequenceEmpty", [], {"dtype": None if dtype is None else int(dtype)})


def array_length(op: PdOp, emit: Emitter) -> ir.Value:
    """The number of its tensors."""
    return as_rank(emit("SequenceLength", [op["x"]]), 0, op.result_shape(), emit)


def _position(op: PdOp, emit: Emitter) -> ir.Value:
    value = as_int64(op.operand("i"), emit)
    return value if op.shape("i") == () else emit("Reshape", [value, emit.ints([])])


def array_read(op: PdOp, emit: Emitter) -> ir.Value:
    """One of its tensors."""
    return emit("SequenceAt", [op["array"], _position(op, emit)])


def array_write(op: PdOp, emit: Emitter) -> ir.Value:
    """A tensor written to a position that is there, or after the last one."""
    import onnx_ir as ir

    array, item, at = op["array"], op["x"], _position(op, emit)
    made = op.operand("array").producer()
    if made is not None and made.op_type == "create_array":
        return emit("SequenceInsert", [array, item])
    there = emit("Less", [at, emit("SequenceLength", [array])])
    kind = ir.SequenceType(ir.TensorType(op.dtype("x")))
    branches = {}
    with emit.body() as nodes:
        replaced = emit("SequenceInsert", [emit("SequenceErase", [array, at]), item, at])
        replaced.type = kind
        branches["then_branch"] = ir.Graph([], [replaced], nodes=nodes, name="replace")
    with emit.body() as nodes:
        appended = emit("SequenceInsert", [array, item])
        appended.type = kind
        branches["else_branch"] = ir.Graph([], [appended], nodes=nodes, name="append")
    return emit("If", [there], branches)


def array_to_tensor(op: PdOp, emit: Emitter) -> tuple[ir.Value, None]:
    """All of its tensors as one."""
    attributes = {"axis": op.attr("axis"), "new_axis": int(op.attr("use_stack"))}
    return emit("ConcatFromSequence", [op["x"]], attributes), None


def select_input(op: PdOp, emit: Emitter) -> ir.Value:
    """The first of two values if the mask is 0, else the second."""
    import onnx_ir as ir

    given = op.operand("x").producer()
    listed = given is not None and given.op_type == "combine"
    items = op.items("x") if listed else [emit.lowered(value) for value in operands(op.node)[1:]]
    if len(items) != 2:
        raise NotLowered(f"it chooses from {len(items)} values, and two are supported")
    mask = op["mask"]
    if op.shape("mask") != ():
        mask = emit("Reshape", [mask, emit.ints([])])
    condition = emit.cast(mask, ir.DataType.BOOL)
    branches = {}
    for name, item in (("then_branch", items[1]), ("else_branch", items[0])):
        with emit.body() as nodes:
            value = emit("Identity", [item])
            value.type = op.node.outputs[0].type
            branches[name] = ir.Graph([], [value], nodes=nodes, name=name)
    return emit("If", [condition], branches)


RULES = {
    "create_array": create_array, "array_length": array_length, "array_read": array_read, "array_write": array_write,
    "array_to_tensor": array_to_tensor, "select_input": select_input,
}  # fmt: skip
