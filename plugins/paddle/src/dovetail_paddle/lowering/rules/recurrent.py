"""Rules for recurrent layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


# By mode: ONNX operator, activation, and the order of Paddle's gates in ONNX.
_MODES = {
    "LSTM": ("LSTM", None, (0, 3, 1, 2)),  # i f c o -> i o f c
    "GRU": ("GRU", None, (1, 0, 2)),  # r z c -> z r h
    "RNN_TANH": ("RNN", "Tanh", (0,)),
    "RNN_RELU": ("RNN", "Relu", (0,)),
}


def rnn(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None, list[ir.Value], None]:
    """Lower stacked layers, each in one or two directions."""
    import onnx_ir as ir

    mode = op.attr("mode")
    if mode not in _MODES:
        raise OpNotLowered(f"its mode is '{mode}'")
    layers, directions = op.attr("num_layers"), 1 + op.attr("is_bidirec")
    weights = [_weight(value) for value in op.originals("weight_list")]
    if len(weights) not in (2 * layers * directions, 4 * layers * directions):
        raise OpNotLowered(f"it has {len(weights)} weights for {layers} layers")
    states = op.items("pre_state")
    lengths = None if op.original("sequence_length") is None else op["sequence_length"]
    if lengths is not None and op.dtype("sequence_length") != ir.DataType.INT32:
        lengths = emit.cast(lengths, ir.DataType.INT32)
    value = op["x"]
    last: list[list[ir.Value]] = [[] for _ in states]
    for layer in range(layers):
        held = [_slice(state, layer * directions, directions, layers * directions, emit) for state in states]
        value, ends = _layer(op, value, weights, layer, held, lengths, emit)
        for kept, end in zip(last, ends, strict=True):
            kept.append(end)
    joined = [items[0] if len(items) == 1 else emit("Concat", items, {"axis": 0}) for items in last]
    return value, None, joined, None


def _weight(value: ir.Value) -> np.ndarray:
    from dovetail_paddle.lowering.op import constant_of

    found = constant_of(value)
    if found is None:
        raise OpNotLowered(f"its weight '{value.name}' is computed")
    return found


def _slice(state: ir.Value, start: int, count: int, whole: int, emit: GraphEmitter) -> ir.Value:
    """Return the states of one layer."""
    if count == whole:
        return state
    return emit("Slice", [state, emit.ints([start]), emit.ints([start + count]), emit.ints([0])])


def _layer(
    op: PdOp,
    value: ir.Value,
    weights: list[np.ndarray],
    layer: int,
    states: list[ir.Value],
    lengths: ir.Value | None,
    emit: GraphEmitter,
) -> tuple[ir.Value, list[ir.Value]]:
    """Lower one layer; return its output for every step, and its final states."""
    import numpy as np

    name, activation, order = _MODES[op.attr("mode")]
    layers, directions, hidden = op.attr("num_layers"), 1 + op.attr("is_bidirec"), op.attr("hidden_size")

    def gates(array: np.ndarray) -> np.ndarray:
        parts = np.split(array, len(order))
        return np.concatenate([parts[at] for at in order])

    first = 2 * layer * directions
    biases = weights[2 * layers * directions :]
    inputs, recurrences, offsets = [], [], []
    for direction in range(directions):
        at = first + 2 * direction
        inputs.append(gates(weights[at]))
        recurrences.append(gates(weights[at + 1]))
        if biases:
            offsets.append(np.concatenate([gates(biases[at]), gates(biases[at + 1])]))
    label = f"{op.node.name}.layer{layer}"
    operands: list[ir.Value | None] = [
        value,
        emit.constant(np.stack(inputs), f"{label}.w"),
        emit.constant(np.stack(recurrences), f"{label}.r"),
        emit.constant(np.stack(offsets), f"{label}.b") if offsets else None,
        lengths,
        *states,
    ]
    attributes = {
        "hidden_size": hidden,
        "direction": "bidirectional" if directions == 2 else "forward",
        "linear_before_reset": 1 if name == "GRU" else None,
        "activations": None if activation is None else [activation] * directions,
    }
    made = emit(name, operands, attributes, outputs=1 + len(states))
    steps = made[0]
    if directions == 1:
        steps = emit("Squeeze", [steps, emit.ints([1])])
    else:
        steps = emit("Transpose", [steps], {"perm": [0, 2, 1, 3]})
        steps = emit("Reshape", [steps, emit.ints([0, 0, -1])])
    return steps, list(made[1:])


RULES = {"rnn": rnn}
