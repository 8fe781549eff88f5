"""Steps of a random graph for images: convolutions, pooling, resizing."""

import numpy as np

from .grown_values import floats


def squeeze_excite(g):
    value = floats(g, 4)
    channels = g.arrays[value].shape[1]
    pooled = g.add("GlobalAveragePool", value)
    thin = g.add("Relu", g.add("Conv", pooled, g.normal(2, channels, 1, 1)))
    g.add("Mul", value, g.add("Sigmoid", g.add("Conv", thin, g.normal(channels, 2, 1, 1), g.normal(channels))))


def conv(g):
    value = floats(g, 4)
    channels = g.arrays[value].shape[1]
    size, group = int(g.rng.choice([1, 3])), int(g.rng.choice([1, 1, channels]))
    wide = channels if group > 1 else int(g.rng.integers(1, 7))
    weight = g.normal(wide, channels // group, size, size)
    if g.float == np.float32 and g.rng.random() < 0.15:
        weight = dequantized_weight(g, (wide, channels // group, size, size))
    bias = [g.normal(wide, scale=0.1)] if g.rng.random() < 0.6 else []
    stride = int(g.rng.choice([1, 1, 2]))
    made = g.add("Conv", value, weight, *bias, pads=[size // 2] * 4, group=group, strides=[stride] * 2)
    if g.rng.random() < 0.3:
        numbers = [g.weight((1 + 0.1 * g.rng.standard_normal(wide)).astype(g.float)) for _ in range(4)]
        made = g.add("BatchNormalization", made, *numbers[:3], g.weight(np.full(wide, 0.8, g.float)))
    if g.rng.random() < 0.5:
        g.add(str(g.rng.choice(["Relu", "Relu", "LeakyRelu", "Sigmoid"])), made)


def dequantized_weight(g, shape):
    whole = g.weight(g.rng.integers(-127, 128, shape).astype(np.int8))
    if g.rng.random() < 0.5:
        return g.add("DequantizeLinear", whole, g.number(0.004), g.weight(np.int8(0), shared=True), keep=False)
    scales = g.weight(g.rng.uniform(0.002, 0.006, shape[0]).astype(np.float32))
    return g.add("DequantizeLinear", whole, scales, g.weight(np.zeros(shape[0], np.int8)), axis=0, keep=False)


def conv_transpose(g):
    value = floats(g, 4)
    channels = g.arrays[value].shape[1]
    g.add("ConvTranspose", value, g.normal(channels, 3, 2, 2), strides=[2, 2])


def pool(g):
    op_type = str(g.rng.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"]))
    plain = {} if op_type.startswith("Global") else {
        "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [int(g.rng.choice([1, 2]))] * 2
    }  # fmt: skip
    g.add(op_type, floats(g, 4), **plain)


def resize(g):
    value = floats(g, 4)
    mode = str(g.rng.choice(["nearest", "linear"]))
    manner = {"mode": mode, "coordinate_transformation_mode": str(g.rng.choice(["asymmetric", "half_pixel"]))}
    if g.rng.random() < 0.5:
        g.add("Resize", value, "", g.weight(np.float32([1, 1, 2, 2]), shared=True), **manner)
    else:
        shape = g.add("Shape", value, keep=False)
        head = g.add("Slice", shape, g.whole(0), g.whole(2), keep=False)
        g.add("Resize", value, "", "", g.add("Concat", head, g.whole(6, 5), axis=0, keep=False), **manner)


def blocks(g):
    value = floats(g, 4)
    g.add(*(("DepthToSpace", value) if g.rng.random() < 0.5 else ("SpaceToDepth", value)), blocksize=2)
