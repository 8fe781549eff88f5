"""Operators with a state of their own."""

import itertools

import numpy as np
from onnx import helper

from ..decomposing import TYPES, Case, kernel_results, on_runtime
from . import numbers, whole


def after_each_position(op_type, times):
    """The results of the kernel, which keeps the last state alone, with the states after the last positions."""

    def expected(**given):
        attributes = {name: given.pop(name) for name in list(given) if not isinstance(given[name], np.ndarray)}
        window = attributes.pop("state_window")
        given = {name: value.astype(np.float32) for name, value in given.items()}
        if "past_state" in given:
            given["past_state"] = given["past_state"][-1]
        first = next(iter(times))
        length = given[first].shape[times[first]]
        slots = []
        for end in range(length - window + 1, length + 1):
            part = {n: v.take(range(max(end, 1)), times[n]) if n in times else v for n, v in given.items()}
            result, state = kernel_results(Case("part", op_type, part, attributes, ["output", "present_state"]))
            slots.append(state if end > 0 else np.zeros_like(state))
        return [result, np.stack(slots)]

    return expected


def convolutions():
    b, c, length = 2, 4, 5
    for last, past, bias, activation, width, dilation, window, opened in itertools.product(
        (0, 1), (False, True), (False, True), ("none", "silu"), (1, 4), (1, 2), (0, 3), (False, True)
    ):
        if bias != (activation == "silu") or width == 1 and dilation == 2:
            continue
        history = (width - 1) * dilation
        shape, state = ((b, length, 2, 2), (b, history, 2, 2)) if last else ((b, c, length), (b, c, history))
        state = (window, *state) if window else state
        inputs = {
            "input": numbers(*shape),
            "weight": numbers(c, 1, width, seed=1),
            "bias": numbers(c, seed=2) if bias else None,
            "past_state": numbers(*state, seed=3) if past else None,
        }
        attributes = {"channels_last": last, "dilation": dilation, "activation": activation, "state_window": window}
        yield Case(
            f"last {last} past {past} {activation} {width} {dilation} window {window} open {opened}",
            "CausalConvWithState",
            inputs,
            attributes,
            ["output", "present_state"],
            ["weight", "bias"],
            {"input": {0: "batch", 1 if last else 2: "length"}} if opened else {},
            expected=after_each_position("CausalConvWithState", {"input": 1 if last else 2}) if window else None,
        )
    for window, dtype in ((3, "float32"), (0, "float16")):
        short = {"input": numbers(b, c, 1, dtype=dtype), "weight": numbers(c, 1, 3, seed=1, dtype=dtype)}
        if window:
            short["past_state"] = numbers(window, b, c, 2)
        yield Case(
            f"one position {dtype}",
            "CausalConvWithState",
            short,
            {"state_window": window},
            ["output", "present_state"],
            expected=after_each_position("CausalConvWithState", {"input": 2}) if window else None,
            through_float32=dtype == "float16",
        )


def attentions():
    size, values = 4, 3
    for rule, (q_heads, heads), length, past, each, opened in itertools.product(
        ("linear", "gated", "delta", "gated_delta"),
        ((2, 2), (4, 2), (2, 4)),
        (1, 5),
        (False, True),
        (False, True),
        (False, True),
    ):
        if each and "gated" not in rule or opened and length == 1:
            continue
        b = 2
        inputs = {
            "query": numbers(b, length, q_heads * size),
            "key": numbers(b, length, heads * size, seed=1, spread=0.4),
            "value": numbers(b, length, heads * values, seed=2),
        }
        if past:
            inputs["past_state"] = numbers(b, heads, size, values, seed=3)
        if "gated" in rule:
            inputs["decay"] = -np.abs(numbers(b, length, heads * (size if each else 1), seed=4))
        if "delta" in rule:
            inputs["beta"] = np.abs(numbers(b, length, 1 if past else heads, seed=5, spread=0.3))
        yield Case(
            f"{rule} {q_heads} of {heads} {length} tokens past {past} each {each} open {opened}",
            "LinearAttention",
            inputs,
            {"q_num_heads": q_heads, "kv_num_heads": heads, "update_rule": rule, "scale": 0.3 if past else 0.0},
            ["output", "present_state"],
            open={name: {0: "batch", 1: "length"} for name in inputs if name != "past_state"} if opened else {},
        )
    for length, window, dtype in ((5, 3, "float32"), (2, 4, "float32"), (1, 2, "float32"), (4, 0, "float16")):
        inputs = {
            name: numbers(2, length, 8, seed=seed, spread=0.5, dtype=dtype)
            for seed, name in enumerate(("query", "key", "value"))
        }
        inputs["past_state"] = numbers(*((window,) if window else ()), 2, 2, 4, 4, dtype=dtype)
        yield Case(
            f"window {window} {length} tokens {dtype}",
            "LinearAttention",
            inputs,
            {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear", "state_window": window},
            ["output", "present_state"],
            expected=after_each_position("LinearAttention", dict.fromkeys(("query", "key", "value"), 1))
            if window
            else None,
            through_float32=dtype == "float16",
        )


def _lstm(X, W, R, W_scale, W_zero_point, R_scale, R_zero_point, direction, hidden_size, **more):  # noqa: N803
    """LSTM of ONNX Runtime, with the numbers that the weights stand for."""

    def real(weight, scale, zero):
        scale, zero = (x.reshape(x.shape[0], 1, -1) for x in (scale, zero))
        return ((weight.astype(np.float64) - zero) * scale).transpose(0, 2, 1).astype(np.float32)

    given = {"X": X, "W": real(W, W_scale, W_zero_point), "R": real(R, R_scale, R_zero_point), **more}
    given = {name: value.astype(np.float32) if value.dtype == np.float64 else value for name, value in given.items()}
    ports = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    node = helper.make_node(
        "LSTM",
        [name if name in given else "" for name in ports],
        ["Y", "Y_h", "Y_c"],
        direction=direction,
        hidden_size=hidden_size,
    )
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given.items()
    ]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in node.output]
    graph = helper.make_graph([node], "lstm", inputs, outputs)
    imports = [helper.make_opsetid("", 21)]
    return on_runtime(helper.make_model(graph, opset_imports=imports, ir_version=10), given)


def recurrent():
    """The kernel rounds to 8 bits in every step; compared with the layer that it approximates, and with the kernel."""
    for direction, kind, columns, more in itertools.product(
        ("forward", "reverse", "bidirectional"), (np.int8, np.uint8), (False, True), (False, True)
    ):
        both = 2 if direction == "bidirectional" else 1
        steps, batch, size, hidden = 4, 2, 5, 3
        low, high = (-60, 60) if kind == np.int8 else (60, 180)
        shape = (both, 4 * hidden) if columns else (both,)
        inputs = {
            "X": numbers(steps, batch, size),
            "W": whole(low, high, both, size, 4 * hidden, dtype=kind),
            "R": whole(low, high, both, hidden, 4 * hidden, seed=1, dtype=kind),
        }
        if more:
            inputs |= {
                "B": numbers(both, 8 * hidden, seed=2, spread=0.3),
                "sequence_lens": np.array([4, 3], np.int32),
                "initial_h": numbers(both, batch, hidden, seed=3, spread=0.3),
                "initial_c": numbers(both, batch, hidden, seed=4),
                "P": numbers(both, 3 * hidden, seed=5, spread=0.3),
            }
        zero = 0 if kind == np.int8 else 128
        for seed, name in ((6, "W"), (7, "R")):
            inputs[f"{name}_scale"] = np.abs(numbers(*shape, seed=seed, spread=0.005)) + np.float32(0.005)
            inputs[f"{name}_zero_point"] = np.full(shape, zero, kind)
        for theirs in (_lstm, None):
            yield Case(
                f"{direction} {kind.__name__} columns {columns} more {more} {'kernel' if theirs is None else 'layer'}",
                "DynamicQuantizeLSTM",
                inputs,
                {"direction": direction, "hidden_size": hidden},
                ["Y", "Y_h", "Y_c"],
                [name for name in inputs if name[0] in "WR"],
                expected=theirs,
                close=0.05 if theirs is None else None,
            )


def gates():
    for dtype, rate in itertools.product(TYPES, (False, True)):
        inputs = {"a": numbers(2, 3, 4, spread=5, dtype=dtype), "dt_bias": numbers(4, seed=1)}
        inputs |= {"decay_scale": numbers(4, seed=2), "b": numbers(2, 3, 4, seed=3, dtype=dtype) if rate else None}
        outputs = ["decay", "beta"] if rate else ["decay"]
        yield Case(f"{dtype} rate {rate}", "LinearAttentionGate", inputs, outputs=outputs)


CASES = [*gates(), *convolutions(), *attentions(), *recurrent()]
