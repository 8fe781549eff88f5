"""Train a small convolutional network on scikit-learn's handwritten digits and write it as ONNX.

    pip install scikit-learn
    python train.py

NumPy alone, half a minute on one core. Writes `digits.onnx` and `test.npz` (held-out images and their labels) beside
this file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

HERE = Path(__file__).parent
HELD_OUT = 360
EPOCHS = 30
BATCH = 64
EPSILON = 1e-5


class Conv:
    """A 3x3 convolution of stride 1 with padding 1, without bias (a normalization follows)."""

    def __init__(self, rng, channels, filters):
        self.params = {"w": (rng.standard_normal((filters, channels, 3, 3)) * np.sqrt(2 / (9 * channels)))}

    def forward(self, x, training):
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        self.windows = sliding_window_view(padded, (3, 3), axis=(2, 3))
        return np.einsum("nchwij,fcij->nfhw", self.windows, self.params["w"], optimize=True)

    def backward(self, grad):
        self.grads = {"w": np.einsum("nchwij,nfhw->fcij", self.windows, grad, optimize=True)}
        padded = np.pad(grad, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = sliding_window_view(padded, (3, 3), axis=(2, 3))
        return np.einsum("nfhwij,fcij->nchw", windows, self.params["w"][:, :, ::-1, ::-1], optimize=True)


class BatchNorm:
    """Normalization over batch and space, with running statistics for inference."""

    def __init__(self, channels):
        self.params = {"scale": np.ones(channels), "bias": np.zeros(channels)}
        self.mean, self.variance = np.zeros(channels), np.ones(channels)

    def forward(self, x, training):
        mean, variance = (x.mean((0, 2, 3)), x.var((0, 2, 3))) if training else (self.mean, self.variance)
        if training:
            self.mean += 0.1 * (mean - self.mean)
            self.variance += 0.1 * (variance - self.variance)
        self.scale = 1 / np.sqrt(variance + EPSILON)
        self.normal = (x - _channel(mean)) * _channel(self.scale)
        return self.normal * _channel(self.params["scale"]) + _channel(self.params["bias"])

    def backward(self, grad):
        self.grads = {"scale": (grad * self.normal).sum((0, 2, 3)), "bias": grad.sum((0, 2, 3))}
        grad = grad * _channel(self.params["scale"])
        mean = grad.mean((0, 2, 3), keepdims=True)
        along = (grad * self.normal).mean((0, 2, 3), keepdims=True)
        return (grad - mean - self.normal * along) * _channel(self.scale)


class Relu:
    """Rectifier."""

    params: dict = {}

    def forward(self, x, training):
        self.on = x > 0
        return x * self.on

    def backward(self, grad):
        return grad * self.on


class MaxPool:
    """2x2 maximum of stride 2."""

    params: dict = {}

    def forward(self, x, training):
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
        y = blocks.max((3, 5))
        first = blocks == y[:, :, :, None, :, None]
        self.share = first / first.sum((3, 5), keepdims=True)
        return y

    def backward(self, grad):
        blocks = grad[:, :, :, None, :, None] * self.share
        n, c, h, _, w, _ = blocks.shape
        return blocks.reshape(n, c, 2 * h, 2 * w)


class Dense:
    """Flattens and multiplies."""

    def __init__(self, rng, inputs, outputs):
        self.params = {"w": rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs), "b": np.zeros(outputs)}

    def forward(self, x, training):
        self.shape = x.shape
        self.x = x.reshape(len(x), -1)
        return self.x @ self.params["w"] + self.params["b"]

    def backward(self, grad):
        self.grads = {"w": self.x.T @ grad, "b": grad.sum(0)}
        return (grad @ self.params["w"].T).reshape(self.shape)


class Adam:
    """Adam over all parameters of all layers."""

    def __init__(self, layers):
        self.layers = [layer for layer in layers if layer.params]
        self.moments = [{k: (np.zeros_like(v), np.zeros_like(v)) for k, v in x.params.items()} for x in self.layers]
        self.steps = 0

    def step(self, rate):
        self.steps += 1
        for layer, moments in zip(self.layers, self.moments):
            for name, (first, second) in moments.items():
                grad = layer.grads[name]
                first += 0.1 * (grad - first)
                second += 0.001 * (grad**2 - second)
                unbiased = np.sqrt(second / (1 - 0.999**self.steps)) + 1e-8
                layer.params[name] -= rate * first / (1 - 0.9**self.steps) / unbiased


def main():
    rng = np.random.default_rng(0)
    data = load_digits()
    images, labels = (data.images / 16)[:, None], data.target
    order = rng.permutation(len(images))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    layers = [
        *(Conv(rng, 1, 16), BatchNorm(16), Relu()),
        *(Conv(rng, 16, 32), BatchNorm(32), Relu(), MaxPool()),
        *(Conv(rng, 32, 32), BatchNorm(32), Relu(), MaxPool()),
        *(Dense(rng, 128, 64), Relu(), Dense(rng, 64, 10)),
    ]
    adam = Adam(layers)
    for epoch in range(EPOCHS):
        for batch in np.split(rng.permutation(train), range(BATCH, len(train), BATCH)):
            x = images[batch]
            for layer in layers:
                x = layer.forward(x, training=True)
            grad = (_softmax(x) - np.eye(10)[labels[batch]]) / len(batch)
            for layer in reversed(layers):
                grad = layer.backward(grad)
            adam.step(2e-3 * (1 - epoch / EPOCHS))
    x = images[test]
    for layer in layers:
        x = layer.forward(x, training=False)
    print(f"held-out top-1: {(x.argmax(1) == labels[test]).mean():.4f} of {len(test)}")
    onnx.save(to_onnx(layers), HERE / "digits.onnx")
    np.savez_compressed(HERE / "test.npz", image=images[test].astype(np.float32), labels=labels[test].astype(np.int64))


def to_onnx(layers):
    """The network with an explicit batch normalization, for inference."""
    nodes, weights, counts, value = [], [], {}, "image"

    def add(op, *arrays, label=None, **attributes):
        nonlocal value
        label = label or op.lower()
        counts[label] = counts.get(label, 0) + 1
        name = f"{label}_{counts[label]}"
        names = [f"{name}.{key}" for key, _ in arrays]
        weights.extend(numpy_helper.from_array(a.astype(np.float32), n) for n, (_, a) in zip(names, arrays))
        nodes.append(helper.make_node(op, [value, *names], [f"{name}_out"], name=name, **attributes))
        value = f"{name}_out"

    for layer in layers:
        params = list(layer.params.items())
        if isinstance(layer, Conv):
            add("Conv", *params, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        elif isinstance(layer, BatchNorm):
            statistics = [("mean", layer.mean), ("var", layer.variance)]
            add("BatchNormalization", *params, *statistics, label="norm", epsilon=EPSILON)
        elif isinstance(layer, Relu):
            add("Relu")
        elif isinstance(layer, MaxPool):
            add("MaxPool", label="pool", kernel_shape=[2, 2], strides=[2, 2])
        elif isinstance(layer, Dense):
            if "flatten" not in counts:
                add("Flatten", axis=1)
            add("Gemm", *params, label="dense")
    add("Softmax", axis=1)
    nodes[-1].output[0] = "probabilities"
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def _channel(vector):
    return vector[None, :, None, None]


def _softmax(x):
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


if __name__ == "__main__":
    main()
