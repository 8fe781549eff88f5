"""Small nets with open extents, as engines are given: batches, sequences, a cache, and the shapes they compute."""

import numpy as np
from onnx import TensorProto

from .nets import SIZE, Net

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
WIDTH, HEADS, WORDS = 16, 2, 40


def resnet():
    """Bottlenecks with batch norms that are not folded yet; the batch is open."""
    net = Net(11)
    x = _normed(net, net.conv("image", 3, 8, 7, 2, name="stem"), 8)
    x = net.add("MaxPool", net.add("Relu", x), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for before, inner, after, stride in ((8, 4, 16, 1), (16, 4, 16, 1), (16, 8, 32, 2)):
        y = net.add("Relu", _normed(net, net.conv(x, before, inner), inner))
        y = net.add("Relu", _normed(net, net.conv(y, inner, inner, 3, stride), inner))
        y = _normed(net, net.conv(y, inner, after), after)
        if before != after or stride > 1:
            x = _normed(net, net.conv(x, before, after, 1, stride), after)
        x = net.add("Relu", net.add("Add", x, y))
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    y = net.add("Gemm", x, net.weight(32, 10), net.constant(np.zeros(10)), name="classes")
    return net.model({"image": (FLOAT, ["batch", 3, SIZE, SIZE])}, y=(y, FLOAT, ["batch", 10]))


def _normed(net, x, channels):
    spread = net.rng.uniform(0.6, 1.4, (3, channels))
    weights = [net.constant(row) for row in (spread[0], spread[1] - 1, spread[2] - 1)]
    return net.add("BatchNormalization", x, *weights, net.constant(net.rng.uniform(0.5, 1.5, channels)))


def bert():
    """Two encoder blocks over words, with a mask; batch and sequence are open, heads are split by shapes."""
    net = Net(12)
    x = net.add("Gather", net.constant(net.rng.normal(0, 0.5, (WORDS, WIDTH))), "words", name="embedding")
    length = net.add("Gather", net.add("Shape", "words"), net.constant([1], np.int64))
    places = net.constant(net.rng.normal(0, 0.2, (64, WIDTH)))
    places = net.add("Slice", places, net.constant([0], np.int64), length, net.constant([0], np.int64))
    x = _layer_norm(net, net.add("Add", x, places))
    missing = net.add("Sub", net.constant(1), net.add("Cast", "mask", to=FLOAT))
    bias = net.add("Mul", net.add("Unsqueeze", missing, net.constant([1, 2], np.int64)), net.constant(-1e4))
    for _ in range(2):
        query, key, value = (_heads(net, net.dense(x, WIDTH, WIDTH)) for _ in range(3))
        x = _layer_norm(net, net.add("Add", x, _attention(net, query, key, value, bias)))
        hidden = net.gelu(net.dense(x, WIDTH, 2 * WIDTH))
        x = _layer_norm(net, net.add("Add", x, net.dense(hidden, 2 * WIDTH, WIDTH)))
    first = net.add("Gather", x, net.constant(0, np.int64), axis=1)
    y = net.add("Tanh", net.dense(first, WIDTH, WIDTH))
    inputs = {name: (INT64, ["batch", "length"]) for name in ("words", "mask")}
    return net.model(inputs, states=(x, FLOAT, ["batch", "length", WIDTH]), y=(y, FLOAT, ["batch", WIDTH]))


def decoder():
    """A decoder block with a cache of keys and values; batch, words and what is cached are open."""
    net = Net(13)
    x = net.add("Gather", net.constant(net.rng.normal(0, 0.5, (WORDS, WIDTH))), "words", name="embedding")
    normed = net.norm(x, WIDTH)
    query, key, value = (_heads(net, net.dense(normed, WIDTH, WIDTH)) for _ in range(3))
    key, value = (net.add("Concat", past, new, axis=2) for past, new in (("past_keys", key), ("past_values", value)))
    # A word sees what is cached and the words up to itself.
    words, zero, one = (net.constant(number, np.int64) for number in (1, 0, 1))
    new = net.add("Gather", net.add("Shape", "words"), words)
    seen = net.add("Gather", net.add("Shape", "past_keys"), net.constant(2, np.int64))
    rows = net.add("Range", seen, net.add("Add", seen, new), one)
    columns = net.add("Range", zero, net.add("Add", seen, new), one)
    hidden = net.add("Less", net.add("Unsqueeze", rows, net.constant([1], np.int64)), columns)
    bias = net.add("Where", hidden, net.constant(-1e4), net.constant(0))
    x = net.add("Add", x, _attention(net, query, key, value, bias))
    x = net.add("Add", x, net.dense(net.gelu(net.dense(net.norm(x, WIDTH), WIDTH, 32)), 32, WIDTH))
    y = net.add("MatMul", net.norm(x, WIDTH), net.weight(WIDTH, WORDS), name="logits")
    cached = ["batch", HEADS, "cached", WIDTH // HEADS]
    inputs = {"words": (INT64, ["batch", "new"]), "past_keys": (FLOAT, cached), "past_values": (FLOAT, cached)}
    present = ["batch", HEADS, "seen", WIDTH // HEADS]
    return net.model(
        inputs, y=(y, FLOAT, ["batch", "new", WORDS]), keys=(key, FLOAT, present), values=(value, FLOAT, present)
    )


def detector():
    """Convolutions with an open batch, rows by computed shapes, and NonMaxSuppression with a gather behind it."""
    net = Net(14)
    x = net.silu(net.conv("image", 3, 8, 3, 2))
    x = net.silu(net.conv(x, 8, 16, 3, 2))
    batch = net.add("Gather", net.add("Shape", x), net.constant([0], np.int64))
    table = net.conv(x, 16, 7, name="head")
    rows = net.add("Reshape", table, net.add("Concat", batch, net.constant([7, -1], np.int64), axis=0))
    moved, logits = net.add("Split", rows, net.constant([4, 3], np.int64), outputs=2, axis=1)
    boxes = net.add("Transpose", net.add("Exp", net.add("Mul", moved, net.constant(0.3))), perm=[0, 2, 1])
    scores = net.add("Sigmoid", logits)
    limits = net.constant([5], np.int64), net.constant([0.6]), net.constant([0.3])
    chosen = net.add("NonMaxSuppression", boxes, scores, *limits, name="nms")
    which = net.add("Gather", chosen, net.constant([0, 2], np.int64), axis=1)
    found = net.add("GatherND", boxes, which)
    return net.model(
        {"image": (FLOAT, ["batch", 3, SIZE, SIZE])},
        found=(found, FLOAT, ["found", 4]), chosen=(chosen, INT64, ["found", 3]),
    )  # fmt: skip


def _layer_norm(net, x):
    return net.add("LayerNormalization", x, net.constant(np.ones(WIDTH)), net.constant(np.zeros(WIDTH)))


def _heads(net, x):
    """Split the width into heads, by the shape of the tensor, as exporters write it."""
    shape = net.add("Shape", x)
    batch, length = (net.add("Gather", shape, net.constant([axis], np.int64)) for axis in (0, 1))
    split = net.add("Concat", batch, length, net.constant([HEADS, WIDTH // HEADS], np.int64), axis=0)
    return net.add("Transpose", net.add("Reshape", x, split), perm=[0, 2, 1, 3])


def _attention(net, query, key, value, bias):
    scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net.add("Add", net.add("Mul", scores, net.constant(1 / np.sqrt(WIDTH // HEADS))), bias)
    mixed = net.add("MatMul", net.add("Softmax", scores, axis=3), value)
    joined = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = net.add("Reshape", joined, net.constant([0, 0, WIDTH], np.int64))
    return net.dense(joined, WIDTH, WIDTH)


ENGINE_NETS = {"resnet": resnet, "bert": bert, "decoder": decoder, "detector": detector}
"""The nets by name."""


def samples(name, batch=2, length=5, cached=3):
    """Inputs of a net."""
    rng = np.random.default_rng(1)
    words = rng.integers(0, WORDS, (batch, length))
    past = {f"past_{what}": rng.normal(0, 0.5, (batch, HEADS, cached, WIDTH // HEADS)) for what in ("keys", "values")}
    return {
        "bert": {"words": words, "mask": np.ones((batch, length), np.int64)},
        "decoder": {"words": words, **{name: array.astype(np.float32) for name, array in past.items()}},
    }.get(name) or {"image": rng.standard_normal((batch, 3, SIZE, SIZE)).astype(np.float32)}
