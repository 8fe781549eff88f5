"""Matrix products and convolutions."""

import itertools

import numpy as np

from ..decomposing import Case
from . import numbers

ACTIVATIONS = {
    "Relu": {},
    "Tanh": {},
    "Sigmoid": {},
    "LeakyRelu": {"alpha": 0.3},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
}


def products():
    for left, right, batch_a, batch_b in itertools.product((0, 1), repeat=4):
        m, k, n = 3, 4, 5
        a, b = [2, k, m] if left else [2, m, k], [2, n, k] if right else [2, k, n]
        a = [a[1], a[0], a[2]] if batch_a else a
        b = [b[1], b[0], b[2]] if batch_b else b
        attributes = {"transA": left, "transB": right, "transBatchA": batch_a, "transBatchB": batch_b, "alpha": 0.5}
        inputs = {"A": numbers(*a), "B": numbers(*b)}
        yield Case(f"{left}{right}{batch_a}{batch_b}", "FusedMatMul", inputs, attributes)
        if not batch_a and not batch_b:
            kept = {"transA": left, "transB": right, "alpha": 0.5}
            yield Case(f"{left}{right}", "TransposeMatMul", inputs, kept, constants=["B"])
    for batch in (0, 1):
        a = [3, 2, 7, 4] if batch else [2, 7, 3, 4]
        inputs = {"A": numbers(*a), "B": numbers(2, 7, 4, 5)}
        yield Case(f"four axes {batch}", "FusedMatMul", inputs, {"transBatchA": batch})
    yield Case("vector", "FusedMatMul", {"A": numbers(4), "B": numbers(4, 5)}, {"alpha": 2.0})
    yield Case("matrices", "FusedMatMul", {"A": numbers(4, 3), "B": numbers(2, 4, 5)}, {"transA": 1})
    for (name, given), c in itertools.product(ACTIVATIONS.items(), (None, (5,), (3, 5))):
        inputs = {"A": numbers(4, 3), "B": numbers(5, 4, seed=1), "C": None if c is None else numbers(*c, seed=2)}
        attributes = {"transA": 1, "transB": 1, "alpha": 0.7, "activation": name}
        attributes |= {f"activation_{key}": value for key, value in given.items()}
        if c is not None:
            attributes["beta"] = 0.3
        yield Case(f"{name} {c}", "FusedGemm", inputs, attributes)
    inputs = {"A": numbers(2, 3, 4), "B": numbers(4, 5, seed=1)}
    yield Case(
        "Relu",
        "FusedMatMulActivation",
        inputs,
        {"activation": "Relu", "alpha": 0.5},
        expected=lambda A, B, **_: np.maximum(0.5 * A @ B, 0),
    )
    inputs = {"X": numbers(2, 3, 4), "W": numbers(4, 5, seed=1), "bias": numbers(5)}
    root = np.sqrt(2 / np.pi)

    def fast(X, W, bias):  # noqa: N803
        y = X @ W + bias
        return 0.5 * y * (1 + np.tanh(root * (y + 0.044715 * y**3)))

    yield Case("bias", "GemmFastGelu", inputs, expected=fast)


WINDOWS = (
    {"pads": [1, 1, 1, 1], "strides": [2, 1]},
    {"auto_pad": "SAME_UPPER"},
    {"dilations": [2, 1]},
    {"group": 2},
)


def convolutions():
    for window, (name, given) in itertools.product(
        WINDOWS, ({"": {}} | ACTIVATIONS | {"Clip": {"low": 0.1, "high": 0.9}}).items()
    ):
        groups = window.get("group", 1)
        inputs = {"X": numbers(2, 4, 7, 6), "W": numbers(6, 4 // groups, 3, 3, seed=1), "B": numbers(6, seed=2)}
        attributes = dict(window) | ({"activation": name} if name else {})
        if given:
            attributes["activation_params"] = list(given.values())
        yield Case(f"{'-'.join(window)} {name}", "FusedConv", inputs, attributes, open={"X": {0: "batch"}})
    inputs = {"X": numbers(2, 4, 7, 6), "W": numbers(6, 4, 3, 3, seed=1), "Z": numbers(2, 6, 5, 4, seed=2)}
    yield Case("residual", "FusedConv", inputs, {"activation": "Relu"}, constants=["W"])
    yield Case("one axis", "FusedConv", {"X": numbers(2, 4, 7), "W": numbers(6, 4, 3)}, {"activation": "Relu"})


def _conv(X, W, B=None, Z=None, pads=(0, 0, 0, 0), strides=(1, 1), activation=""):  # noqa: N803
    x = np.pad(X, ((0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, W.shape[2:], axis=(1, 2))[:, :: strides[0], :: strides[1]]
    result = np.einsum("nhwcij,mcij->nhwm", windows, W)
    result = result + (0 if B is None else B) + (0 if Z is None else Z)
    return np.maximum(result, 0) if activation == "Relu" else result


def channels_last():
    """ONNX Runtime has kernels on GPUs alone; compared with the formula, channels last."""
    for dtype, bias in itertools.product(("float32", "float16"), (False, True)):
        inputs = {
            "X": numbers(2, 7, 6, 4, dtype=dtype),
            "W": numbers(5, 4, 3, 3, seed=1, dtype=dtype),
            "B": numbers(5, seed=2, dtype=dtype) if bias else None,
        }
        attributes = {"pads": [1, 0, 1, 2], "strides": [2, 1]}
        yield Case(f"{dtype}{' bias' * bias}", "NhwcConv", inputs, attributes, expected=_conv)
        residual = inputs | {"Z": numbers(2, 4, 6, 5, seed=3, dtype=dtype)}
        attributes = attributes | {"activation": "Relu"}
        yield Case(f"{dtype}{' bias' * bias}", "NhwcFusedConv", residual, attributes, expected=_conv)


CASES = [*products(), *convolutions(), *channels_last()]
