"""Rules for `while`, `if`, tensor arrays (ONNX sequences), and selection between values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import name_of

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.lowering.op import OpNotLowered, PdOp, constant_of, extents
from dovetail_paddle.lowering.shapes import as_int64, as_rank
from dovetail_paddle.pd_graph import operands

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter
    from dovetail_paddle.lowering.graphs import ModelLowering


def lower_while(node: ir.Node, lowering: ModelLowering) -> None:
    """Lower `while` to a Loop without a trip count."""
    import onnx_ir as ir

    emit = lowering.emit
    body = node.attributes["body"].as_graph()
    first = _condition(operands(node)[0], emit)
    carried = [_start(value, again, emit) for value, again in zip(operands(node)[1:], body.outputs[1:], strict=True)]
    iteration = ir.Value(name=emit.names.fresh("iteration"), type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    going = ir.Value(name=emit.names.fresh("going"), type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    inputs = []
    for value in body.inputs:
        held = ir.Value(name=emit.names.fresh(name_of(value)), type=value.type)
        emit.bind(value, held)
        inputs.append(held)
    with emit.body() as nodes:
        lowering.nodes(body)
        emit.source = node
        again = _condition(body.outputs[0], emit) if not lowering.problems else None
        if again is None:
            return
        outputs = _own(again, nodes, emit), *lowering.results(body.outputs[1:], nodes)
    outputs[0].type = ir.TensorType(ir.DataType.BOOL)
    graph = ir.Graph([iteration, going, *inputs], list(outputs), nodes=nodes, name=body.name)
    emit.source = node
    made = emit("Loop", [None, first, *carried], {"body": graph}, outputs=len(carried))
    for value, lowered in zip(node.outputs, (made,) if len(carried) == 1 else made, strict=True):
        emit.bind(value, lowered)


def _start(value: ir.Value, again: ir.Value, emit: GraphEmitter) -> ir.Value:
    """Return the initial value of a loop-carried variable.

    A variable that the body writes first has a placeholder here: an unused constant of any type.
    """
    import numpy as np

    lowered, known = emit.lowered(value), constant_of(value)
    if known is None or again.dtype is None or lowered.dtype == again.dtype:
        return lowered
    if again.dtype.is_integer():
        limits = np.iinfo(again.dtype.numpy())
        known = np.clip(known.astype(np.float64), limits.min / 2, limits.max / 2)
    return emit.constant(known.astype(again.dtype.numpy()))


def lower_if(node: ir.Node, lowering: ModelLowering) -> None:
    """Lower `if` to an If."""
    import onnx_ir as ir

    emit = lowering.emit
    condition = _condition(operands(node)[0], emit)
    branches = {}
    for name in ("then_branch", "else_branch"):
        branch = node.attributes[name].as_graph()
        with emit.body() as nodes:
            lowering.nodes(branch)
            if lowering.problems:
                return
            outputs = lowering.results(branch.outputs, nodes)
        branches[name] = ir.Graph([], outputs, nodes=nodes, name=branch.name)
    emit.source = node
    made = emit("If", [condition], branches, outputs=len(node.outputs))
    for value, lowered in zip(node.outputs, (made,) if len(node.outputs) == 1 else made, strict=True):
        emit.bind(value, lowered)


def _condition(value: ir.Value, emit: GraphEmitter) -> ir.Value:
    """Return a condition as a scalar; older programs give it an axis."""
    lowered = emit.lowered(value)
    return lowered if extents(value) == () else emit("Reshape", [lowered, emit.ints([])])


def _own(value: ir.Value, nodes: list[ir.Node], emit: GraphEmitter) -> ir.Value:
    """Return a value produced by a node of this graph, copying it if necessary."""
    return value if any(value is output for node in nodes for output in node.outputs) else emit("Identity", [value])


def create_array(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Create an empty array."""
    dtype = onnx_type(op.attr("dtype"))
    return emit("SequenceEmpty", [], {"dtype": None if dtype is None else int(dtype)})


def array_length(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Return the number of tensors in an array."""
    return as_rank(emit("SequenceLength", [op["x"]]), 0, op.result_shape(), emit)


def _position(op: PdOp, emit: GraphEmitter) -> ir.Value:
    value = as_int64(op.operand("i"), emit)
    return value if op.shape("i") == () else emit("Reshape", [value, emit.ints([])])


def array_read(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Read a tensor from an array."""
    return emit("SequenceAt", [op["array"], _position(op, emit)])


def array_write(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Write a tensor to an existing position of an array, or append it."""
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


def array_to_tensor(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None]:
    """Concatenate or stack the tensors of an array."""
    attributes = {"axis": op.attr("axis"), "new_axis": int(op.attr("use_stack"))}
    return emit("ConcatFromSequence", [op["x"]], attributes), None


def select_input(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Select the first of two values if the mask is 0, else the second."""
    import onnx_ir as ir

    given = op.operand("x").producer()
    listed = given is not None and given.op_type == "combine"
    items = op.items("x") if listed else [emit.lowered(value) for value in operands(op.node)[1:]]
    if len(items) != 2:
        raise OpNotLowered(f"it chooses from {len(items)} values, and two are supported")
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
    "create_array": create_array,
    "array_length": array_length,
    "array_read": array_read,
    "array_write": array_write,
    "array_to_tensor": array_to_tensor,
    "select_input": select_input,
}
