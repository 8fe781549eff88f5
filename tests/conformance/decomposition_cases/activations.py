"""Activations, and what is fused into them."""

import itertools
import math

import numpy as np

from ..decomposing import TYPES, Case
from . import numbers

OPEN = {0: "batch", 1: "length"}
_erf = np.vectorize(math.erf)


def _gelu(x):
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def _bias_split_gelu(X, bias):  # noqa: N803
    left, right = np.split(X + bias, 2, axis=-1)
    return left * _gelu(right)


def _softmax(data, bias, axis, is_inner_broadcast):
    x = data + bias
    flat = x.reshape(*x.shape[:axis], -1)
    e = np.exp(flat - flat.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).reshape(x.shape)


def gelus():
    for name, shape in itertools.product(("Gelu", "FastGelu", "QuickGelu"), ((), (5,), (2, 3, 8), (2, 0, 8))):
        if name == "FastGelu" and not shape:
            continue  # its kernel wants an axis
        yield Case(f"{len(shape)} axes {math.prod(shape)}", name, {"X": numbers(*shape, spread=3)})
    for shape in ((2, 3, 8), (4, 8)):
        bias = numbers(8, seed=1)
        axes = {0: "batch"}
        yield Case(f"{shape}", "BiasGelu", {"A": numbers(*shape, spread=3), "B": bias}, open={"A": axes})
        yield Case(f"bias {shape}", "FastGelu", {"X": numbers(*shape, spread=3), "bias": bias}, open={"X": axes})
    yield Case("alpha", "QuickGelu", {"X": numbers(2, 3, 8)}, {"alpha": 0.7})
    for dtype in ("float16", "bfloat16"):
        x = numbers(2, 8, dtype=dtype, spread=3)
        yield Case(dtype, "Gelu", {"X": x}, expected=lambda X: _gelu(X))
        yield Case(dtype, "BiasGelu", {"A": x, "B": numbers(8, dtype=dtype)}, expected=lambda A, B: _gelu(A + B))
        yield Case(dtype, "QuickGelu", {"X": x}, expected=lambda X: X / (1 + np.exp(-1.702 * X)))


def fused():
    """ONNX Runtime has kernels on GPUs alone, or for training; compared with the documented formulas."""
    for dtype in ("float32", "float16"):
        x, bias = numbers(2, 3, 16, dtype=dtype), numbers(16, seed=1, dtype=dtype)
        yield Case(dtype, "BiasSplitGelu", {"X": x, "bias": bias}, open={"X": OPEN}, expected=_bias_split_gelu)
        skip = numbers(2, 3, 16, seed=2, dtype=dtype)
        yield Case(
            dtype, "BiasAdd", {"X": x, "bias": bias, "skip": skip}, expected=lambda X, bias, skip: X + bias + skip
        )
        for axis, inner, shape in ((3, 0, (3, 4)), (3, 1, (2, 1, 1, 4)), (2, 0, (1, 1, 3, 4))):
            inputs = {"data": numbers(2, 2, 3, 4, dtype=dtype), "bias": numbers(*shape, seed=1, dtype=dtype)}
            attributes = {"axis": axis, "is_inner_broadcast": inner}
            yield Case(f"{dtype} {axis} {inner}", "BiasSoftmax", inputs, attributes, expected=_softmax)
        inputs = {"data": x, "bias": bias, "residual": skip, "training_mode": np.array(False)}
        yield Case(
            dtype,
            "BiasDropout",
            inputs,
            constants=["training_mode"],
            outputs=["output", "mask"],
            expected=lambda data, bias, residual, training_mode: [data + bias + residual, np.full(data.shape, True)],
        )


def _swiglu(gate, up=None, activation_alpha=1.0, activation_beta=0.0, limit=0.0, round_activation=0):
    gate, up = np.split(gate, 2, axis=-1) if up is None else (gate, up)
    if limit > 0:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate / (1 + np.exp(-activation_alpha * gate)) * (up + activation_beta)


def gates():
    for dtype, scale in itertools.product(TYPES, (None, "float32", "float16")):
        inputs = {"X": numbers(2, 8, dtype=dtype), "scale": None if scale is None else np.array(0.7, TYPES[scale])}
        yield Case(f"{dtype} {scale}", "ScaledSiLU", inputs, {"alpha": 1.3})
    for dtype in ("float32", "float16"):
        inputs = {name: numbers(2, 3, 8, seed=index, dtype=dtype) for index, name in enumerate("XY")}
        yield Case(dtype, "GatedAdd", inputs | {"gate": numbers(2, 3, 1, dtype=dtype)}, open={"X": OPEN, "Y": OPEN})
    for dtype, packed, limit, rounded in itertools.product(("float32", "float16"), (0, 1), (0.0, 0.8), (0, 1)):
        inputs = {
            "gate": numbers(2, 3, 16, dtype=dtype),
            "up": None if packed else numbers(2, 3, 16, seed=1, dtype=dtype),
        }
        attributes = {"activation_alpha": 1.7, "activation_beta": 1.0, "limit": limit, "round_activation": rounded}
        yield Case(f"{dtype} {packed} {limit} {rounded}", "SwiGLU", inputs, attributes, expected=_swiglu)


CASES = [*gelus(), *fused(), *gates()]
