"""Rules for decoding of sequences: the best path through tags, and the beams that lead to a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import PdOp
from dovetail_paddle.lowering.shapes import as_int64, extent

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter

_Step = Callable[[Sequence["ir.Value"], Sequence["ir.Value"]], tuple[Sequence["ir.Value"], "ir.Value"]]


def _scan(
    name: str,
    states: Sequence[ir.Value],
    inputs: Sequence[ir.Value],
    step: _Step,
    emit: GraphEmitter,
    backward: bool = False,
) -> tuple[ir.Value, ...]:
    """Emit a Scan along the first axis of the inputs.

    Args:
        name: The name of the body.
        states: The initial states.
        inputs: The values to scan, with known types.
        step: Emits one step from states and elements; returns the next states and what is collected.
        emit: The emitter.
        backward: Whether to begin at the end; what is collected is in the order of the inputs all the same.

    Returns:
        The last states, and what was collected.
    """
    import onnx_ir as ir

    held = [
        ir.Value(name=emit.names.fresh(f"{name}.{kind}"), type=ir.TensorType(value.dtype))
        for kind, values in (("state", states), ("element", inputs))
        for value in values
        if value.dtype is not None
    ]
    with emit.body() as nodes:
        after, collected = step(held[: len(states)], held[len(states) :])
    outputs = [*after, collected]
    for value, source in zip(outputs, [*states, None]):
        value.type = ir.TensorType(source.dtype if source is not None and source.dtype else ir.DataType.INT64)
    body = ir.Graph(held, outputs, nodes=nodes, name=emit.names.fresh(name))
    attributes = {"body": body, "num_scan_inputs": len(inputs)}
    if backward:
        attributes |= {"scan_input_directions": [1] * len(inputs), "scan_output_directions": [1]}
    return emit("Scan", [*states, *inputs], attributes, outputs=len(outputs))


def _typed(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    import onnx_ir as ir

    value.type = ir.TensorType(dtype)
    return value


def gather_tree(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Follow the beams of a search back from the last step: step, batch, beam."""
    import onnx_ir as ir

    ids, parents = (_typed(as_int64(op.operand(name), emit), ir.DataType.INT64) for name in ("ids", "parents"))
    shape = emit("Concat", [extent(op, "ids", 1, emit), extent(op, "ids", 2, emit)], {"axis": 0})
    beams = emit("Squeeze", [extent(op, "ids", 2, emit), emit.ints([0])])
    first = emit("Range", [emit.constant(_number(0)), beams, emit.constant(_number(1))])
    beam = _typed(emit("Expand", [first, shape]), ir.DataType.INT64)

    def step(states: Sequence[ir.Value], elements: Sequence[ir.Value]) -> tuple[list[ir.Value], ir.Value]:
        tokens, above = (emit("GatherElements", [element, states[0]], {"axis": 1}) for element in elements)
        return [above], tokens

    _, found = _scan("gather_tree", [beam], [ids, parents], step, emit, backward=True)
    return emit.cast(found, ir.DataType.INT32) if op.dtype("ids") == ir.DataType.INT32 else found


def viterbi_decode(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Find the most probable path of tags, and its score, for sequences of several lengths.

    With tags for start and stop, the last row of the transitions is from the start, and the row before to the stop.
    """
    import onnx_ir as ir

    dtype = op.dtype("potentials")
    (batch,) = op.ranked_shape("lengths")
    op.retype(0, dtype, [batch])  # Paddle declares other types than it computes
    op.retype(1, ir.DataType.INT64, [batch, None])
    lengths = _typed(as_int64(op.operand("lengths"), emit), ir.DataType.INT64)
    steps = _typed(emit("Transpose", [op["potentials"]], {"perm": [1, 0, 2]}), dtype)
    longest = emit("ReduceMax", [lengths, emit.ints([0])], {"keepdims": 1})
    moves = emit("Unsqueeze", [op["transition_params"], emit.ints([0])])
    one, zero = emit.constant(_number(1)), emit.constant(_number(0))
    stop = emit("Gather", [op["transition_params"], emit.ints([-2])]) if op.attr("include_bos_eos_tag") else None

    def ended(scores: ir.Value, left: ir.Value) -> ir.Value:
        if stop is None:
            return scores
        here = emit("Unsqueeze", [emit("Equal", [left, one]), emit.ints([1])])
        return emit("Where", [here, emit("Add", [scores, stop]), scores])

    scores = emit("Gather", [steps, zero])
    if stop is not None:
        scores = emit("Add", [scores, emit("Gather", [op["transition_params"], emit.ints([-1])])])
    scores, left = _typed(ended(scores, lengths), dtype), _typed(emit("Sub", [lengths, one]), ir.DataType.INT64)

    def forward(states: Sequence[ir.Value], elements: Sequence[ir.Value]) -> tuple[list[ir.Value], ir.Value]:
        known, remaining = states
        sums = emit("Add", [emit("Unsqueeze", [known, emit.ints([2])]), moves])
        best = emit("Add", [emit("ReduceMax", [sums, emit.ints([1])], {"keepdims": 0}), elements[0]])
        going = emit("Unsqueeze", [emit("Greater", [remaining, zero]), emit.ints([1])])
        after = ended(emit("Where", [going, best, known]), remaining)
        return [after, emit("Sub", [remaining, one])], emit("ArgMax", [sums], {"axis": 1, "keepdims": 0})

    later = _typed(emit("Slice", [steps, emit.ints([1]), longest, emit.ints([0])]), dtype)
    scores, left, history = _scan("viterbi_forward", [scores, left], [later], forward, emit)
    last = _typed(emit("ArgMax", [scores], {"axis": 1, "keepdims": 0}), ir.DataType.INT64)

    def backward(states: Sequence[ir.Value], elements: Sequence[ir.Value]) -> tuple[list[ir.Value], ir.Value]:
        tag, remaining = states[0], emit("Add", [states[1], one])
        before = emit("GatherElements", [elements[0], emit("Unsqueeze", [tag, emit.ints([1])])], {"axis": 1})
        before = emit("Squeeze", [before, emit.ints([1])])
        # after the end of a shorter sequence, its last tag waits, and the path holds 0
        shown = emit("Where", [emit("Greater", [remaining, zero]), before, emit("Mul", [tag, zero])])
        shown = emit("Where", [emit("Equal", [remaining, zero]), tag, shown])
        kept = emit("Where", [emit("Greater", [remaining, zero]), before, tag])
        return [kept, remaining], shown

    history = _typed(history, ir.DataType.INT64)
    left = _typed(left, ir.DataType.INT64)
    _, _, path = _scan("viterbi_backward", [last, left], [history], backward, emit, backward=True)
    final = emit("Where", [emit("Less", [left, zero]), emit("Mul", [last, zero]), last])
    whole = emit("Concat", [path, emit("Unsqueeze", [final, emit.ints([0])])], {"axis": 0})
    best = emit("ReduceMax", [scores, emit.ints([1])], {"keepdims": 0})
    return best, emit("Transpose", [whole], {"perm": [1, 0]})


def _number(value: int):
    import numpy as np

    return np.array(value, np.int64)


RULES = {"gather_tree": gather_tree, "viterbi_decode": viterbi_decode}
