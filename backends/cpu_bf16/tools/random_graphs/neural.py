"""Convolutions, pooling, products, normalization, recurrent operators and attention."""

from __future__ import annotations

import numpy as np

from .graph import FLOAT, INT64, Graph, Impossible, Value

__all__ = ["OPERATORS"]


def _window(g: Graph, extents: tuple[int, ...], largest: int = 3) -> dict:
    """Kernel, strides, dilations and pads that leave at least one position."""
    kernel = [g.integer(1, min(largest, extent)) for extent in extents]
    strides = [g.integer(1, 2) for _ in extents]
    dilations = [g.integer(1, 2) if g.chance(0.2) else 1 for _ in extents]
    pads = [[0, 0] for _ in extents]
    for axis, extent in enumerate(extents):
        if g.chance(0.5):
            pads[axis] = [g.integer(0, kernel[axis] // 2), g.integer(0, kernel[axis] // 2)]
        if (kernel[axis] - 1) * dilations[axis] + 1 > extent + sum(pads[axis]):
            dilations[axis] = 1
    flat = [begin for begin, _ in pads] + [end for _, end in pads]
    return {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": flat}


def _conv(g: Graph) -> None:
    value = g.ranked(3, 4, 4, 5)
    channels = value.shape[1]
    group = channels if g.chance(0.3) else 1
    wanted = group * g.integer(1, 3) if group > 1 else g.integer(1, 6)
    options = _window(g, value.shape[2:])
    if g.chance(0.1):  # padding around a pointwise kernel
        options["kernel_shape"] = [1] * (value.rank - 2)
        options["pads"] = [g.integer(0, 1) for _ in options["pads"]]
    shape = (wanted, channels // group, *options["kernel_shape"])
    weight = g.weight(*shape, scale=1 / np.sqrt(np.prod(shape[1:])))
    bias = g.weight(wanted, scale=0.1) if g.chance(0.6) else None
    result = g.node("Conv", [value, weight, bias], bound=value.bound * 2, group=group, **options)
    if g.chance(0.4):
        _batch_norm_of(g, result)


def _conv_transpose(g: Graph) -> None:
    value = g.ranked(3, 4, 4)
    group = value.shape[1] if g.chance(0.2) else 1
    wanted = g.integer(1, 4)
    extents = value.shape[2:]
    kernel = [g.integer(1, 3) for _ in extents]
    weight = g.weight(value.shape[1], wanted, *kernel, scale=1 / np.sqrt(value.shape[1] / group * 2))
    bias = g.weight(wanted * group, scale=0.1) if g.chance(0.5) else None
    options = {"strides": [g.integer(1, 2) for _ in extents], "kernel_shape": kernel, "group": group}
    if all(k == 3 for k in kernel) and g.chance(0.5):
        options["pads"] = [1] * (2 * len(extents))
    if g.chance(0.2):
        options["output_padding"] = [stride - 1 for stride in options["strides"]]
    g.node("ConvTranspose", [value, weight, bias], bound=value.bound * 2, **options)


def _pool(op_type: str):
    def make(g: Graph) -> None:
        value = g.ranked(3, 4, 4)
        options = _window(g, value.shape[2:])
        if op_type != "MaxPool":
            del options["dilations"]
        if op_type == "AveragePool" and g.chance(0.5):
            options["count_include_pad"] = 1
        if g.chance(0.2) and op_type != "LpPool":
            options["ceil_mode"] = 1
        if op_type == "MaxPool" and g.chance(0.3):
            g.results(op_type, [value], 2, bound=value.bound, **options)
        else:
            g.node(op_type, [value], bound=value.bound * 3, **options)

    return make


def _global_pool(op_type: str):
    def make(g: Graph) -> None:
        if op_type == "GlobalLpPool" and g.opset >= 22:
            raise Impossible  # ONNX Runtime, the reference, has no kernel
        value = g.ranked(3, 4, 5)
        g.node(op_type, [value], bound=value.bound * (4 if op_type == "GlobalLpPool" else 1))

    return make


def _matmul(g: Graph) -> None:
    value = g.floats(lambda candidate: candidate.rank >= 2)
    try:
        if g.chance(0.5):
            raise Impossible
        second = g.floats(
            lambda other: (
                other.rank == value.rank and other.shape[:-2] == value.shape[:-2] and other.shape[-2] == value.shape[-1]
            )
        )
    except Impossible:
        second = g.weight(value.shape[-1], g.integer(1, 6), scale=1 / np.sqrt(value.shape[-1]))
    result = g.node("MatMul", [value, second], bound=value.bound * max(second.bound, 1) * 2)
    if g.chance(0.4):
        g.node("Add", [result, g.weight(result.shape[-1], scale=0.2)], bound=result.bound + 1)


def _gemm(g: Graph) -> None:
    value = g.ranked(2)
    turned, wanted = g.integer(0, 1), g.integer(1, 6)
    deep = value.shape[0] if (flip := g.integer(0, 1)) else value.shape[1]
    weight = g.weight(*((wanted, deep) if turned else (deep, wanted)), scale=1 / np.sqrt(deep))
    bias = g.weight(wanted, scale=0.1) if g.chance(0.6) else None
    g.node("Gemm", [value, weight, bias], transA=flip, transB=turned, alpha=g.choose([1.0, 0.5]), bound=value.bound * 2)


def _einsum(g: Graph) -> None:
    value = g.ranked(2, 3)
    wanted = g.integer(1, 5)
    weight = g.weight(value.shape[-1], wanted, scale=1 / np.sqrt(value.shape[-1]))
    equation = g.choose(["ij,jk->ik", "ij,jk->ki"] if value.rank == 2 else ["bij,jk->bik", "bij,jk->bki", "bij,jk->bk"])
    g.node("Einsum", [value, weight], equation=equation, bound=value.bound * 4)


def _quantized_product(op_type: str):
    def make(g: Graph) -> None:
        value = g.ranked(2, 3) if "MatMul" in op_type else g.ranked(4)
        scale, zero = g.constant(np.float32(0.03)), g.constant(np.uint8(128))
        low = g.node("QuantizeLinear", [value, scale, zero])
        deep = value.shape[-1] if "MatMul" in op_type else value.shape[1]
        shape = (deep, 3) if "MatMul" in op_type else (3, deep, 1, 1)
        weight = g.constant(g.rng.integers(-60, 60, shape).astype(np.int8))
        weight_scale, weight_zero = g.constant(np.float32(0.01)), g.constant(np.int8(0))
        if op_type in ("ConvInteger", "MatMulInteger"):
            total = g.node(op_type, [low, weight, zero, weight_zero])
            g.values.remove(total)
            wide = g.node("Cast", [total], to=FLOAT, bound=1e5)
            g.values.remove(wide)
            g.node("Mul", [wide, g.constant(np.float32(0.0003))])
            return
        out_scale, out_zero = g.constant(np.float32(0.05)), g.constant(np.uint8(120))
        inputs = [low, scale, zero, weight, weight_scale, weight_zero, out_scale, out_zero]
        low = g.node(op_type, inputs)
        g.node("DequantizeLinear", [low, out_scale, out_zero])

    return make


def _batch_norm_of(g: Graph, value: Value) -> None:
    channels = value.shape[1]
    statistics = [g.positive(channels), g.weight(channels, scale=0.3), g.weight(channels, scale=0.3)]
    g.node("BatchNormalization", [value, *statistics, g.positive(channels)], bound=value.bound * 3, epsilon=1e-3)


def _batch_norm(g: Graph) -> None:
    _batch_norm_of(g, g.ranked(2, 3, 4))


def _instance_norm(g: Graph) -> None:
    value = g.floats(lambda v: v.rank in (3, 4) and int(np.prod(v.shape[2:])) >= 3)
    channels = value.shape[1]
    parameters = [g.positive(channels), g.weight(channels, scale=0.3)]
    g.node("InstanceNormalization", [value, *parameters], epsilon=1e-2)


def _layer_norm(op_type: str):
    def make(g: Graph) -> None:
        value = g.floats(lambda v: v.rank >= 2 and v.shape[-1] >= 3)
        axis = -2 if value.rank > 2 and g.chance(0.3) else -1
        shape = value.shape[axis:]
        parameters = [g.positive(*shape)]
        if op_type == "LayerNormalization" and g.chance(0.7):
            parameters.append(g.weight(*shape, scale=0.3))
        g.node(op_type, [value, *parameters], axis=axis, epsilon=1e-2)

    return make


def _group_norm(g: Graph) -> None:
    if g.opset < 21:
        raise Impossible
    value = g.floats(lambda v: v.rank in (3, 4) and v.shape[1] % 2 == 0 and int(np.prod(v.shape[2:])) >= 3)
    channels = value.shape[1]
    g.node("GroupNormalization", [value, g.positive(channels), g.weight(channels)], num_groups=2, epsilon=1e-2)


def _lrn(g: Graph) -> None:
    g.node("LRN", [g.ranked(4)], size=g.choose([3, 5]), alpha=0.01)


def _lp_norm(g: Graph) -> None:
    value = g.floats(lambda v: v.rank >= 2 and v.shape[-1] >= 2)
    away = g.node("Add", [value, g.constant(np.float32(0.3))], bound=value.bound + 1)
    g.node("LpNormalization", [away], axis=-1, p=g.integer(1, 2), bound=1.0)


def _mvn(g: Graph) -> None:
    value = g.floats(lambda v: v.rank == 4 and v.shape[0] * v.shape[2] * v.shape[3] >= 6)
    g.node("MeanVarianceNormalization", [value])


def _softmax(op_type: str):
    def make(g: Graph) -> None:
        value = g.floats(lambda v: v.rank >= 2)
        g.node(op_type, [value], axis=g.choose([-1, -1, 1, 0, -2]), bound=1.0 if op_type != "LogSoftmax" else 12.0)

    return make


def _recurrent(op_type: str):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type]

    def make(g: Graph) -> None:
        value = g.ranked(3)
        length, batch, width = value.shape
        hidden, ways = g.integer(1, 5), g.integer(1, 2)
        weights = [
            g.weight(ways, gates * hidden, width, scale=1 / np.sqrt(width)),
            g.weight(ways, gates * hidden, hidden, scale=1 / np.sqrt(hidden)),
            g.weight(ways, 2 * gates * hidden, scale=0.2) if g.chance(0.6) else None,
        ]
        options = {"direction": "bidirectional" if ways == 2 else g.choose(["forward", "reverse"])}
        if op_type == "GRU" and g.chance(0.5):
            options["linear_before_reset"] = 1
        count = g.integer(1, 3 if op_type == "LSTM" else 2)
        state = g.weight(ways, batch, hidden, scale=0.5) if g.chance(0.4) else None
        made = g.results(op_type, [value, *weights, None, state], count, bound=1.0, hidden_size=hidden, **options)
        if g.chance(0.5):
            g.node("Squeeze", [made[0], g.ints(1)], bound=1.0) if ways == 1 else None

    return make


def _attention(g: Graph) -> None:
    if g.opset < 23:
        raise Impossible
    value = g.ranked(4)
    other = g.node("Tanh", [value], bound=1.0)
    g.node("Attention", [value, other, g.squash(value)], bound=2.0)


def _grid_sample(g: Graph) -> None:
    value = g.ranked(4)
    grid = g.weight(value.shape[0], g.integer(1, 4), g.integer(1, 4), 2, scale=0.6)
    mode = "linear" if g.opset >= 20 else "bilinear"
    options = {"align_corners": g.integer(0, 1), "padding_mode": g.choose(["zeros", "border"])}
    g.node("GridSample", [value, grid], bound=value.bound, mode=mode, **options)


def _roi_align(g: Graph) -> None:
    if g.opset >= 22:
        raise Impossible  # ONNX Runtime, the reference, has no kernel
    value = g.ranked(4)
    rois = g.constant(np.array([[0, 0, 2, 2], [0.5, 0.5, 3, 2.5]], np.float32))
    batch = g.constant(np.array([0, value.shape[0] - 1], np.int64))
    g.node("RoiAlign", [value, rois, batch], bound=value.bound, output_height=2, output_width=2, sampling_ratio=2)


def _loss(op_type: str):
    def make(g: Graph) -> None:
        scores = g.ranked(2)
        if op_type == "NegativeLogLikelihoodLoss":
            scores = g.node("LogSoftmax", [scores], axis=1, bound=12.0)
        target = g.constant(g.rng.integers(0, scores.shape[1], scores.shape[0]).astype(np.int64))
        g.node(op_type, [scores, target], reduction=g.choose(["mean", "sum", "none"]), bound=30.0)

    return make


def _window_function(op_type: str):
    def make(g: Graph) -> None:
        value = g.floats(lambda candidate: candidate.rank >= 1)
        made = g.node(op_type, [g.constant(np.int64(value.shape[-1]))], bound=1.0)
        if made.shape == (None,):
            g.ends.remove(made)
            made = Value(made.name, FLOAT, (value.shape[-1],), 1.0)
        away = g.node("Add", [made, g.constant(np.float32(0.5))], bound=1.5)  # its ends are zero but for rounding
        g.node("Mul", [value, away], bound=value.bound * 1.5)
        if g.rare:
            g.values.remove(made)

    return make


def _rotary(g: Graph) -> None:
    if g.opset < 23:
        raise Impossible
    value = g.floats(lambda v: v.rank == 4 and v.shape[-1] % 2 == 0)
    angles = g.rng.uniform(0, 3, (value.shape[0], value.shape[2], value.shape[3] // 2))
    caches = [g.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
    g.node("RotaryEmbedding", [value, *caches], bound=value.bound * 2)


def embedding(g: Graph) -> None:
    """A lookup in a table of weights by computed integers."""
    index = g.pick(INT64)
    bounded = g.node("Mod", [g.node("Abs", [index]), g.constant(np.int64(5))])
    g.node("Gather", [g.weight(5, g.integer(1, 4)), bounded], axis=0, bound=3.0)


OPERATORS = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    **{name: _pool(name) for name in ("MaxPool", "AveragePool", "LpPool")},
    **{name: _global_pool(name) for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")},
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    **{name: _quantized_product(name) for name in ("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul")},
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    **{name: _layer_norm(name) for name in ("LayerNormalization", "RMSNormalization")},
    "GroupNormalization": _group_norm,
    "LRN": _lrn,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mvn,
    **{name: _softmax(name) for name in ("Softmax", "LogSoftmax", "Hardmax")},
    **{name: _recurrent(name) for name in ("LSTM", "GRU", "RNN")},
    "Attention": _attention,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
    **{name: _loss(name) for name in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")},
    **{name: _window_function(name) for name in ("HannWindow", "HammingWindow", "BlackmanWindow")},
    "RotaryEmbedding": _rotary,
    "Gather of weights": embedding,
}
"""Functions that add an operator to a graph, by name."""
