"""`while` and `if`, whose bodies are lowered with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.required import name_of

from dovetail_paddle.lowering.constants import constant_of
from dovetail_paddle.lowering.op import extents
from dovetail_paddle.pd_graph import operands

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter
    from dovetail_paddle.lowering.graphs import Lowering


def lower_while(node: ir.Node, lowering: Lowering) -> None:
    """`while` as a Loop without a bound on its iterations."""
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


def _start(value: ir.Value, again: ir.Value, emit: Emitter) -> ir.Value:
    """What a loop begins with.

    A variable that is written in the body first has a placeholder of any type here, a constant that nothing reads.
    """
    import numpy as np

    lowered, known = emit.lowered(value), constant_of(value)
    if known is None or again.dtype is None or lowered.dtype == again.dtype:
        return lowered
    if again.dtype.is_integer():
        limits = np.iinfo(again.dtype.numpy())
        known = np.clip(known.astype(np.float64), limits.min / 2, limits.max / 2)
    return emit.constant(known.astype(again.dtype.numpy()))


def lower_if(node: ir.Node, lowering: Lowering) -> None:
    """`if` as an If."""
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


def _condition(value: ir.Value, emit: Emitter) -> ir.Value:
    """A condition without axes, which older programs give one."""
    lowered = emit.lowered(value)
    return lowered if extents(value) == () else emit("Reshape", [lowered, emit.ints([])])


def _own(value: ir.Value, nodes: list[ir.Node], emit: Emitter) -> ir.Value:
    """A value that a node of this graph gives."""
    return value if any(value is output for node in nodes for output in node.outputs) else emit("Identity", [value])
