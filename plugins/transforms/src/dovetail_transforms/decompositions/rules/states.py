"""Operators with a state: causal convolutions, linear attention, and a recurrent layer of integers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of

from dovetail_transforms.decompositions.rules.activations import sigmoid_weighted

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula, Size

    Results = Sequence[ir.Value | None]


def _without_window(op: Formula, past: ir.Value | None) -> ir.Value | None:
    """Return the state to begin with: the last slot, if the node keeps several."""
    window = op.attribute("state_window")
    return past if past is None or not window else op.squeeze(op.slice(past, 0, window - 1, window), 0)


def _convolution(op: Formula) -> Results:
    """A depthwise convolution of positions up to the present one, and the inputs that the next call needs.

    With `state_window`, the state has a slot for each of the last positions; slots of positions before the call are 0.
    """
    defaults = {"ndim": 1, "state_channels_last": -1}
    others = ("ndim", "state_update_capacity", "state_length", "state_channels_last", "input_channel_offset")
    for name in (*others, "input_channels"):
        op.refuse_if(op.attribute(name) != defaults.get(name, 0), f"its {name} is {op.attribute(name)}")
    x, weight = op.required("input"), op.required("weight")
    channels = op.required_extent(weight, 0, "number of its channels")
    width = op.required_extent(weight, 2, "width of its kernel")
    last, dilation = bool(op.attribute("channels_last")), op.attribute("dilation")
    history = (width - 1) * dilation

    def to_front(value: ir.Value) -> ir.Value:
        return op.Transpose(op.reshape(value, 0, 0, channels), perm=[0, 2, 1]) if last else value

    inside = to_front(op.wide(x))
    past = _without_window(op, op.wide_or_none("past_state"))
    if past is None:
        every = op.Pad(inside, op.integers([0, 0, history, 0, 0, 0], "pads"))
    else:
        every = op.Concat(to_front(past), inside, axis=2)
    bias = op.wide_or_none("bias")
    result = op.Conv(every, op.wide(weight), *([] if bias is None else [bias]), group=channels, dilations=[dilation])
    if op.attribute("activation") != "none":
        result = sigmoid_weighted(op, result)
    if last:
        result = op.shaped_like(op.Transpose(result, perm=[0, 2, 1]), x)
    result = op.cast(result, dtype_of(x))
    if not op.is_read("present_state"):
        return result, None
    present = _history(op, every, op.size(inside, 2), history)
    if last:
        axes = op.rank(present)
        present = op.Transpose(present, perm=[*range(axes - 2), axes - 1, axes - 2])
        middle = [op.size(x, axis) for axis in range(2, op.rank(x))]
        present = op.reshape(present, *[0] * (axes - 1), *middle)
    return result, op.cast(present, dtype_of(x))


def _history(op: Formula, every: ir.Value, length: Size, history: int) -> ir.Value:
    """Return the last inputs, or with a window the last inputs at each of the last positions."""
    import onnx_ir as ir

    window = op.attribute("state_window")
    extents = [op.named(every, 0), op.named(every, 1), history]
    if not window:
        return op.of_shape(op.slice(every, 2, length, op.plus(length, history)), extents)
    slots = []
    zero = op.number(0, ir.DataType.INT64)
    for behind in reversed(range(window)):
        start = op.Sub(op.as_value(length), op.number(behind, ir.DataType.INT64))
        first = op.Max(start, zero)
        part = op.slice(every, 2, first, op.plus(first, history))
        part = op.of_shape(op.Where(op.Greater(start, zero), part, op.number(0, part)), extents)
        slots.append(op.unsqueeze(part, 0))
    return op.Concat(*slots, axis=0)


def _linear_attention(op: Formula) -> Results:
    """Linear attention: one state per head of keys, updated token by token by one of four rules.

    A single token is computed at once, and more of them by a Scan.
    """
    q_heads, heads = op.attribute("q_num_heads"), op.attribute("kv_num_heads")
    rule, dtype = op.attribute("update_rule"), dtype_of(op.required("query"))
    query, key, value = (op.required(name) for name in ("query", "key", "value"))
    size = op.required_extent(query, 2, "last extent of its queries") // q_heads
    values = op.required_extent(value, 2, "last extent of its values") // heads
    parts = [
        _over_time(op, query, q_heads, size),
        _over_time(op, key, heads, size),
        _over_time(op, value, heads, values),
    ]
    if "gated" in rule:
        parts.append(_over_time(op, op.required("decay"), heads, -1))
    if "delta" in rule:
        parts.append(_over_time(op, op.required("beta"), -1, 1))
    past = _without_window(op, op.wide_or_none("past_state"))
    if past is None:
        zero = op.tensor(_zeros(heads, size, values), "state")
        past = op.expand(zero, op.size(query, 0), heads, size, values)
    scale = op.attribute("scale") or 1 / math.sqrt(size)
    result, states = _steps(op, past, parts, scale)
    result = op.Transpose(result, perm=[1, 0, 2, 3])
    result = op.cast(op.reshape(result, 0, 0, max(q_heads, heads) * values), dtype)
    if not op.is_read("present_state"):
        return result, None
    given = op.input("past_state")
    return result, op.cast(_kept(op, states, op.size(query, 1)), dtype if given is None else dtype_of(given))


def _zeros(heads: int, size: int, values: int):
    import numpy as np

    return np.zeros((1, heads, size, values), np.float32)


def _over_time(op: Formula, x: ir.Value, heads: int, size: int) -> ir.Value:
    """Return [batch, length, heads * size] as [length, batch, heads, size], in the type to compute in."""
    return op.Transpose(op.reshape(op.wide(x), 0, 0, heads, size), perm=[1, 0, 2, 3])


def _kept(op: Formula, states: ir.Value, length: Size) -> ir.Value:
    """Return the last state of [length, batch, heads, size, size], or those that the node keeps."""
    window = op.attribute("state_window")
    if not window:
        return op.squeeze(op.slice(states, 0, -1, 2**62), 0)
    padded = op.Pad(states, op.integers([window, *[0] * 9], "pads"))
    return op.slice(padded, 0, length, op.plus(length, window))


def _step(
    op: Formula, state: ir.Value, parts: Sequence[ir.Value], rule: str, scale: float
) -> tuple[ir.Value, ir.Value]:
    """Return state and result of a token; its parts are [batch, heads, size]."""
    q, k, v, *more = parts
    heads, q_heads = (op.required_extent(x, 1, "number of heads") for x in (k, q))
    column = op.unsqueeze(k, 3)
    if "gated" in rule:
        state = op.Mul(state, op.unsqueeze(op.Exp(more[0]), 3))
    update = op.unsqueeze(v, 2)
    if "delta" in rule:
        seen = op.MatMul(op.unsqueeze(k, 2), state)
        update = op.Mul(op.unsqueeze(more[-1], 3), op.Sub(update, seen))
    state = op.Add(state, op.Mul(column, update))
    rows, source = op.unsqueeze(op.scaled(q, scale), 2), state
    if q_heads > heads:
        source = _spread(op, source, q_heads // heads)
    elif heads > q_heads:
        rows = _spread(op, rows, heads // q_heads)
    return state, op.squeeze(op.MatMul(rows, source), 2)


def _spread(op: Formula, x: ir.Value, times: int) -> ir.Value:
    """Return [batch, heads, rows, columns] with every head repeated."""
    sizes = [op.required_extent(x, axis, "shape of a state") for axis in (1, 2, 3)]
    wide = op.expand(op.unsqueeze(x, 2), 1, 1, times, 1, 1)
    return op.reshape(wide, 0, sizes[0] * times, *sizes[1:])


def _steps(op: Formula, state: ir.Value, parts: Sequence[ir.Value], scale: float) -> tuple[ir.Value, ir.Value]:
    """Return the results of all tokens and the states after them, the tokens first."""
    import onnx_ir as ir

    rule = op.attribute("update_rule")
    if op.extent(parts[0], 0) == 1:
        after, result = _step(op, state, [op.squeeze(part, 0) for part in parts], rule, scale)
        return op.unsqueeze(result, 0), op.unsqueeze(after, 0)
    inner = type(op)(op.node, op._names, op.version)
    kind = ir.TensorType(ir.DataType.FLOAT)

    def port(value: ir.Value, what: str, first: int) -> ir.Value:
        assert value.shape is not None
        return ir.Value(name=op.fresh(what), type=kind, shape=ir.Shape(list(value.shape)[first:]))

    inputs = [port(state, "state", 0), *(port(part, "token", 1) for part in parts)]
    after, result = _step(inner, inputs[0], inputs[1:], rule, scale)
    passed = inner.Identity(after)  # a body gives each result once
    for new in inner.nodes:
        new.name = op.fresh(new.op_type)
        for value in new.outputs:
            value.name = op.fresh(f"{new.op_type}_out")
    op.initializers.extend(inner.initializers)
    body = ir.Graph(inputs, [after, result, passed], nodes=inner.nodes, name=op.fresh("step"))
    _, results, states = op.Scan(state, *parts, body=body, num_scan_inputs=len(parts), outputs=3)
    for whole, one in ((results, result), (states, passed)):
        whole.type = kind
        whole.shape = None if one.shape is None else ir.Shape([op.extent(parts[0], 0), *one.shape])
    return results, states


def _gate(op: Formula) -> Results:
    """The decay of a state, `decay_scale * softplus(a + dt_bias)`, and the rate of updates, `sigmoid(b)`."""
    a, b = op.required("a"), op.wide_or_none("b")
    decay = op.Mul(op.Softplus(op.Add(op.wide(a), op.required("dt_bias"))), op.required("decay_scale"))
    return op.cast(decay, dtype_of(a)), None if b is None else op.cast(op.Sigmoid(b), dtype_of(a))


def _lstm(op: Formula) -> Results:
    """LSTM with the real numbers that its integer weights represent.

    The kernel rounds inputs and states to 8 bits in every step, and saturates sums on processors without VNNI; this is
    the layer that it approximates.
    """
    import onnx_ir as ir

    names = ("B", "sequence_lens", "initial_h", "initial_c", "P")

    def weight(name: str) -> ir.Value:
        number = op.cast(op.required(name), ir.DataType.FLOAT)
        scale, zero = op.required(f"{name}_scale"), op.cast(op.required(f"{name}_zero_point"), ir.DataType.FLOAT)
        columns = op.rank(scale) == 2 and op.extent(scale, 1) != 1
        scale, zero = (op.unsqueeze(x, 1) if columns else op.reshape(x, -1, 1, 1) for x in (scale, zero))
        return op.Transpose(op.Mul(op.Sub(number, zero), scale), perm=[0, 2, 1])

    listed = ("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget")
    kept = {name: op.attribute(name) for name in listed}
    inputs = [op.required("X"), weight("W"), weight("R"), *(op.input(name) for name in names)]
    return op.LSTM(*inputs, outputs=3, **kept)


RULES: Mapping = {
    "com.microsoft.CausalConvWithState": _convolution,
    "com.microsoft.LinearAttention": _linear_attention,
    "com.microsoft.LinearAttentionGate": _gate,
    "com.microsoft.DynamicQuantizeLSTM": _lstm,
}
