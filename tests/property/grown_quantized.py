"""Steps of a random graph in the form of QOperator: integers go from operator to operator."""

import numpy as np

from .grown import Impossible
from .grown_values import pick

CONTRIB = "com.microsoft"


def qoperators(g):
    """A value that is quantized, a few operators of integers, and floats again."""
    value = pick(g, lambda array: array.dtype == np.float32 and array.ndim in (2, 4))
    kind = g.rng.choice([np.uint8, np.int8])
    now = (g.add("QuantizeLinear", value, *scale_of(g, g.arrays[value], kind), keep=False), g.arrays[value])
    for _ in range(int(g.rng.integers(1, 4))):
        step = STEPS[int(g.rng.integers(len(STEPS)))]
        now = step(g, *now, kind)
    whole, real = now
    g.add("DequantizeLinear", whole, *scale_of(g, real, kind))


def scale_of(g, array, kind):
    """Scale and zero point as weights, for the numbers that a value has. A value has one scale."""
    low, high = min(float(array.min(initial=0)), 0.0), max(float(array.max(initial=0)), 0.0)
    scale = np.float32(max((high - low) / 255, 1e-3))
    ends = np.iinfo(kind)
    zero = np.clip(np.round(ends.min - low / scale), ends.min, ends.max).astype(kind)
    return g.weight(scale, shared=True), g.weight(np.asarray(zero), shared=True)


def weight_of(g, shape, channels):
    """Weights of int8 with one scale, or one for each channel."""
    whole = g.rng.integers(-100, 101, shape).astype(np.int8)
    scales = g.rng.uniform(0.002, 0.01, channels if g.rng.random() < 0.5 else ()).astype(np.float32)
    return whole, scales


def _given(g, array, name, kind):
    return [name, *scale_of(g, array, kind)]


def conv(g, name, array, kind):
    if array.ndim != 4:
        raise Impossible("an image is needed")
    channels, wide = array.shape[1], int(g.rng.integers(1, 6))
    whole, scales = weight_of(g, (wide, channels, 3, 3), wide)
    real = whole * scales.reshape(-1, 1, 1, 1) if scales.ndim else whole * scales
    products = g.add("Conv", g.weight(array), g.weight(real.astype(np.float32)), pads=[1] * 4, keep=False)
    result = g.arrays[products]
    g.nodes.pop()
    weights = [g.weight(whole), g.weight(scales), g.weight(np.zeros(scales.shape, np.int8))]
    step = scale_of(g, result, kind)
    return g.add("QLinearConv", *_given(g, array, name, kind), *weights, *step, pads=[1] * 4, keep=False), result


def matmul(g, name, array, kind):
    wide = int(g.rng.integers(2, 6))
    whole, scales = weight_of(g, (array.shape[-1], wide), wide)
    result = (array @ (whole * scales)).astype(np.float32)
    weights = [g.weight(whole), g.weight(scales), g.weight(np.zeros(scales.shape, np.int8))]
    step = scale_of(g, result, kind)
    return g.add("QLinearMatMul", *_given(g, array, name, kind), *weights, *step, keep=False), result


def binary(g, name, array, kind):
    operator = str(g.rng.choice(["QLinearAdd", "QLinearMul"]))
    result = array + array if operator == "QLinearAdd" else array * array
    given = _given(g, array, name, kind)
    return g.add(operator, *given, *given, *scale_of(g, result, kind), domain=CONTRIB, keep=False), result


def unary(g, name, array, kind):
    operator = str(g.rng.choice(["QLinearSigmoid", "QLinearLeakyRelu"]))
    leaky = {"alpha": 0.1} if operator == "QLinearLeakyRelu" else {}
    result = np.where(array > 0, array, np.float32(0.1) * array) if leaky else 1 / (1 + np.exp(-array))
    given = [*_given(g, array, name, kind), *scale_of(g, result, kind)]
    return g.add(operator, *given, domain=CONTRIB, keep=False, **leaky), result


def joined(g, name, array, kind):
    result = np.concatenate([array, array], 1)
    given = _given(g, array, name, kind)
    step = scale_of(g, result, kind)
    return g.add("QLinearConcat", *step, *given, *given, axis=1, domain=CONTRIB, keep=False), result


def pooled(g, name, array, kind):
    if array.ndim != 4:
        raise Impossible("an image is needed")
    result = array.mean((2, 3), keepdims=True)
    given = [*_given(g, array, name, kind), *scale_of(g, result, kind)]
    return g.add("QLinearGlobalAveragePool", *given, channels_last=0, domain=CONTRIB, keep=False), result


STEPS = (conv, matmul, binary, unary, joined, pooled)
