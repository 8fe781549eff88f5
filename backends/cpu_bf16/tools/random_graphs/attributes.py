"""Operators with any attributes and extents that ONNX allows, where the usual generators choose common ones.

Kernels are chosen by extents and attributes, and the rarely chosen ones are the least tested: a batch with one channel,
a window as wide as the data, no axes at all.
"""

from __future__ import annotations

import numpy as np

from . import windows
from .graph import BOOL, INT64, Graph, Impossible

__all__ = ["OPERATORS", "any_shape"]

EXTENTS = (1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17)
LARGEST = 1500  # elements

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp",
    "ReduceLogSum", "ReduceProd",
)  # fmt: skip


def any_shape(g: Graph, rank: int = 0) -> tuple[int, ...]:
    """Extents of a small tensor, often one."""
    rank = rank or g.choose([1, 2, 3, 3, 4, 4, 4, 5])
    while True:
        shape = tuple(int(g.choose(EXTENTS)) for _ in range(rank))
        if np.prod(shape) <= LARGEST:
            return shape


def _reduction(op_type: str):
    def make(g: Graph) -> None:
        value = g.floats(lambda candidate: candidate.rank >= 1)
        if op_type == "ReduceProd":
            value = g.squash(value)
        if op_type == "ReduceLogSum":
            value = g.node("Add", [g.node("Abs", [value]), g.constant(np.float32(0.5))], bound=value.bound + 1)
        bound = value.bound * (value.bound if op_type == "ReduceSumSquare" else 1) * np.prod(value.shape) + 12.0
        options = {"keepdims": g.integer(0, 1)}
        as_input = g.opset >= (13 if op_type == "ReduceSum" else 18)
        if as_input and g.chance(0.3):
            options["noop_with_empty_axes"] = g.integer(0, 1)
        count = g.choose([0, *range(1, value.rank + 1)])
        axes = [int(axis) for axis in g.rng.permutation(value.rank)[:count]]
        axes = [axis - value.rank if g.chance(0.3) else axis for axis in axes]
        if not axes and g.chance(0.5):  # no axes at all
            g.node(op_type, [value], bound=bound, **options)
        elif as_input and axes and g.chance(0.2):
            flag = g.pick(BOOL, lambda candidate: candidate.rank == 0)
            zero = g.node("Mul", [g.node("Cast", [flag], to=INT64), g.constant(np.int64(0))], bound=0.0)
            g.node(op_type, [value, g.node("Add", [zero, g.ints(*axes)])], bound=bound, **options)
        elif as_input:
            g.node(op_type, [value, g.ints(*axes)], bound=bound, **options)
        elif axes:
            g.node(op_type, [value], bound=bound, axes=axes, **options)
        else:
            raise Impossible

    return make


def _arg(op_type: str):
    def make(g: Graph) -> None:
        value = g.floats(lambda candidate: candidate.rank >= 1)
        axis = g.integer(-value.rank, value.rank - 1)
        g.node(op_type, [value], axis=axis, keepdims=g.integer(0, 1), select_last_index=g.integer(0, 1))

    return make


def _recurrent(op_type: str):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type]

    def make(g: Graph) -> None:
        value = g.ranked(3)
        length, batch, width = value.shape
        hidden, ways = g.choose([1, 2, 3, 5, 8]), g.integer(1, 2)
        weights = [
            g.weight(ways, gates * hidden, width, scale=1 / np.sqrt(width)),
            g.weight(ways, gates * hidden, hidden, scale=1 / np.sqrt(hidden)),
            g.weight(ways, 2 * gates * hidden, scale=0.2) if g.chance(0.6) else None,
        ]
        options = {"direction": "bidirectional" if ways == 2 else g.choose(["forward", "reverse"])}
        if op_type == "GRU":
            options["linear_before_reset"] = g.integer(0, 1)
        if g.chance(0.2):
            options["clip"] = 0.5
        if g.chance(0.2):
            kinds = [g.choose(["Sigmoid", "Tanh", "Relu", "HardSigmoid"]) for _ in range({1: 1, 3: 2, 4: 3}[gates])]
            options["activations"] = kinds * ways
        lengths = None
        if g.chance(0.3):
            lengths = g.constant(g.rng.integers(1, length + 1, batch).astype(np.int32))
        state = g.weight(ways, batch, hidden, scale=0.5) if g.chance(0.4) else None
        count = g.integer(1, 3 if op_type == "LSTM" else 2)
        g.results(op_type, [value, *weights, lengths, state], count, bound=2.0, hidden_size=hidden, **options)

    return make


def _normalization(op_type: str):
    def make(g: Graph) -> None:
        value = g.floats(lambda v: v.rank >= 2 and int(np.prod(v.shape[1:])) >= 3)
        if op_type in ("LayerNormalization", "RMSNormalization"):
            axis = g.integer(1, value.rank - 1)
            if np.prod(value.shape[axis:]) < 3:
                raise Impossible
            parameters = [g.positive(*value.shape[axis:])]
            if op_type == "LayerNormalization" and g.chance(0.7):
                parameters.append(g.weight(*value.shape[axis:], scale=0.3))
            axis = axis - value.rank if g.chance(0.5) else axis
            g.node(op_type, [value, *parameters], axis=axis, epsilon=1e-2)
        elif op_type == "LpNormalization":
            away = g.node("Add", [value, g.constant(np.float32(0.3))], bound=value.bound + 1)
            g.node(op_type, [away], axis=g.integer(-value.rank, value.rank - 1), p=g.integer(1, 2), bound=1.0)
        elif op_type == "MeanVarianceNormalization":
            axes = sorted(int(a) for a in g.rng.permutation(value.rank)[: g.integer(1, value.rank)])
            if np.prod([value.shape[axis] for axis in axes]) < 3:
                raise Impossible
            g.node(op_type, [value], axes=axes)
        elif op_type == "LRN":
            if value.rank != 4:
                raise Impossible
            g.node(op_type, [value], size=g.choose([1, 3, 5, 7]), alpha=0.05, beta=0.5, bias=g.choose([1.0, 2.0]))
        elif op_type == "InstanceNormalization":
            if value.rank < 3 or np.prod(value.shape[2:]) < 3:
                raise Impossible
            channels = value.shape[1]
            g.node(op_type, [value, g.positive(channels), g.weight(channels)], epsilon=1e-2)
        else:
            channels = value.shape[1]
            groups = windows.divisor(g, channels)
            if g.opset < 21 or value.rank < 3 or np.prod(value.shape[1:]) / groups < 3:
                raise Impossible
            g.node(op_type, [value, g.positive(channels), g.weight(channels)], num_groups=groups, epsilon=1e-2)

    return make


def _softmax(op_type: str):
    def make(g: Graph) -> None:
        value = g.floats(lambda v: v.rank >= 1)
        axis = g.integer(-value.rank, value.rank - 1)
        g.node(op_type, [value], axis=axis, bound=12.0 if op_type == "LogSoftmax" else 1.0)

    return make


def _matmul(g: Graph) -> None:
    value = g.floats(lambda candidate: candidate.rank >= 1)
    deep, wanted = value.shape[-1], g.choose(EXTENTS)
    batch = tuple(extent if g.chance(0.5) else 1 for extent in value.shape[:-2])
    batch = batch[g.integer(0, len(batch)) :]
    shape = g.choose([(deep,), (deep, wanted), (*batch, deep, wanted)])
    second = g.weight(*shape, scale=1 / np.sqrt(deep))
    if g.chance(0.3):
        second = g.node("Tanh", [second], bound=1.0)
    g.node("MatMul", [value, second], bound=value.bound * 3)


def _gemm(g: Graph) -> None:
    value = g.ranked(2)
    turned, flip = g.integer(0, 1), g.integer(0, 1)
    rows, deep = value.shape[::-1] if flip else value.shape
    wanted = g.choose(EXTENTS)
    weight = g.weight(*((wanted, deep) if turned else (deep, wanted)), scale=1 / np.sqrt(deep))
    bias = g.choose([(), (1,), (wanted,), (1, wanted), (rows, 1), (rows, wanted), None])
    third = None if bias is None else g.weight(*bias, scale=0.3)
    options = {"alpha": g.choose([1.0, 0.5, -2.0]), "beta": g.choose([1.0, 0.5, 0.0])}
    g.node("Gemm", [value, weight, third], transA=flip, transB=turned, bound=value.bound * 4, **options)


def _top_k(g: Graph) -> None:
    value = g.floats(lambda candidate: candidate.rank >= 1)
    axis = g.integer(-value.rank, value.rank - 1)
    count = g.integer(1, value.shape[axis])
    g.results("TopK", [value, g.ints(count)], 2, bound=value.bound, axis=axis, largest=g.integer(0, 1))


def _cumsum(g: Graph) -> None:
    value = g.floats(lambda candidate: candidate.rank >= 1)
    axis = g.integer(-value.rank, value.rank - 1)
    options = {"exclusive": g.integer(0, 1), "reverse": g.integer(0, 1)}
    g.node("CumSum", [value, g.constant(np.int64(axis))], bound=value.bound * value.shape[axis], **options)


def _gather(g: Graph) -> None:
    value = g.floats(lambda candidate: candidate.rank >= 1)
    axis = g.integer(-value.rank, value.rank - 1)
    shape = g.choose([(), (1,), (2,), (1, 3), (2, 1)])
    indices = g.rng.integers(-value.shape[axis], value.shape[axis], shape).astype(np.int64)
    g.node("Gather", [value, g.constant(indices)], axis=axis, bound=value.bound)


def _slice_(g: Graph) -> None:
    value = g.floats(lambda candidate: candidate.rank >= 1)
    axes = [int(axis) for axis in g.rng.permutation(value.rank)[: g.integer(1, value.rank)]]
    starts, ends, steps = [], [], []
    for axis in axes:
        extent, step = value.shape[axis], g.choose([1, 1, 2, 3, -1, -2])
        start = g.integer(0, extent - 1)
        starts.append(start - extent if g.chance(0.3) else start)
        ends.append(
            g.choose([extent, 2**31 - 1, 2**63 - 1]) if step > 0 else g.choose([-extent - 1, -(2**31), -(2**63)])
        )
        steps.append(step)
    axes = [axis - value.rank if g.chance(0.3) else axis for axis in axes]
    g.node("Slice", [value, *(g.ints(*part) for part in (starts, ends, axes, steps))], bound=value.bound)


def _pad(g: Graph) -> None:
    value = g.floats(lambda candidate: candidate.rank >= 1)
    mode = g.choose(["constant", "constant", "edge", "reflect"])
    axes = sorted(int(axis) for axis in g.rng.permutation(value.rank)[: g.integer(1, value.rank)])
    most = [min(2, value.shape[axis] - 1) if mode == "reflect" else 2 for axis in axes]
    pads = g.ints(*(g.integer(0, limit) for limit in most * 2))
    filler = g.constant(np.float32(g.choose([0.0, 0.5]))) if mode == "constant" and g.chance(0.6) else None
    if g.opset < 18:
        raise Impossible
    g.node("Pad", [value, pads, filler, g.ints(*axes)], mode=mode, bound=value.bound)


def _split(g: Graph) -> None:
    value = g.floats(lambda candidate: max(candidate.shape, default=1) >= 2)
    axis = g.choose([i for i, extent in enumerate(value.shape) if extent >= 2])
    parts = g.integer(2, min(4, value.shape[axis]))
    cuts = sorted(int(c) for c in g.rng.choice(np.arange(1, value.shape[axis]), parts - 1, replace=False))
    sizes = np.diff([0, *cuts, value.shape[axis]])
    axis = axis - value.rank if g.chance(0.3) else axis
    g.results("Split", [value, g.ints(*(int(size) for size in sizes))], parts, bound=value.bound, axis=axis)


def _depth(op_type: str):
    def make(g: Graph) -> None:
        size = g.choose([2, 2, 3])
        value = g.floats(lambda v: v.rank == 4)
        if op_type == "DepthToSpace":
            if value.shape[1] % size**2:
                raise Impossible
            g.node(op_type, [value], blocksize=size, mode=g.choose(["DCR", "CRD"]), bound=value.bound)
        elif value.shape[2] % size or value.shape[3] % size:
            raise Impossible
        else:
            g.node(op_type, [value], blocksize=size, bound=value.bound)

    return make


def _binary(op_type: str):
    """Element by element with a constant that is broadcast in any way, on either side."""

    def make(g: Graph) -> None:
        value = g.floats()
        shape = tuple(extent if g.chance(0.6) else 1 for extent in value.shape)
        other = g.weight(*shape[g.integer(0, len(shape)) :], scale=1.0)
        if op_type == "Div":
            other = g.node("Add", [g.node("Abs", [other]), g.constant(np.float32(0.5))], bound=3.0)
        if op_type == "PRelu":
            g.node(op_type, [value, other], bound=value.bound * 3)
            return
        pair = [value, other] if op_type == "Div" or g.chance(0.5) else [other, value]
        g.node(op_type, pair, bound=value.bound * 3 + 3)

    return make


def _parametric(op_type: str, *names: str):
    """An activation with any parameters, zero among them."""

    def make(g: Graph) -> None:
        value = g.floats()
        options = {name: g.choose([0.0, 0.0, 0.2, 0.5, 1.0, 2.0]) for name in names}
        g.node(op_type, [value], bound=value.bound * 4 + 2, **options)

    return make


def _quantize(g: Graph) -> None:
    value = g.floats(lambda candidate: candidate.rank >= 1)
    axis = g.integer(0, value.rank - 1)
    per_axis = g.chance(0.5)
    shape = (value.shape[axis],) if per_axis else ()
    scale = g.constant(g.rng.uniform(0.02, 0.06, shape).astype(np.float32))
    zero = g.constant(g.rng.integers(100, 150, shape).astype(np.uint8))
    options = {"axis": axis} if per_axis else {}
    low = g.node("QuantizeLinear", [value, scale, zero], **options)
    g.node("DequantizeLinear", [low, scale, zero], bound=value.bound + 1, **options)


def _transpose(g: Graph) -> None:
    value = g.floats(lambda candidate: candidate.rank >= 2)
    g.node("Transpose", [value], perm=[int(axis) for axis in g.rng.permutation(value.rank)], bound=value.bound)


OPERATORS = {
    "Conv": windows.conv,
    "ConvTranspose": windows.conv_transpose,
    **{name: windows.pool(name) for name in ("MaxPool", "AveragePool", "LpPool")},
    **{name: windows.global_pool(name) for name in ("GlobalAveragePool", "GlobalMaxPool")},
    "RoiAlign": windows.roi_align,
    **{name: _reduction(name) for name in REDUCTIONS},
    **{name: _arg(name) for name in ("ArgMax", "ArgMin")},
    **{name: _recurrent(name) for name in ("LSTM", "GRU", "RNN")},
    **{
        name: _normalization(name)
        for name in (
            "LayerNormalization", "RMSNormalization", "LpNormalization", "MeanVarianceNormalization", "LRN",
            "InstanceNormalization", "GroupNormalization",
        )
    },
    **{name: _softmax(name) for name in ("Softmax", "LogSoftmax", "Hardmax")},
    "MatMul": _matmul,
    "Gemm": _gemm,
    "GridSample": windows.grid_sample,
    "TopK": _top_k,
    "CumSum": _cumsum,
    "Gather": _gather,
    "Slice": _slice_,
    "Pad": _pad,
    "Split": _split,
    **{name: _depth(name) for name in ("DepthToSpace", "SpaceToDepth")},
    **{name: _binary(name) for name in ("Add", "Sub", "Mul", "Div", "Max", "PRelu")},
    "HardSigmoid": _parametric("HardSigmoid", "alpha", "beta"),
    "Selu": _parametric("Selu", "alpha", "gamma"),
    **{name: _parametric(name, "alpha") for name in ("Elu", "LeakyRelu", "ThresholdedRelu")},
    "Shrink": _parametric("Shrink", "bias", "lambd"),
    "QuantizeLinear": _quantize,
    "Transpose": _transpose,
    "Resize": windows.resize,
}  # fmt: skip
"""Functions that add an operator to a graph, by name."""
