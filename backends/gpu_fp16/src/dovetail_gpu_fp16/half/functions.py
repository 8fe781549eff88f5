"""Functions of one element as ONNX Runtime's WebGPU provider computes them: by formulas whose every step is float16.

The formulas are those of its shaders (onnxruntime-ep-webgpu 0.4.0, unary_elementwise_ops), checked by
`backends/gpu_fp16/tools/measure_sums.py`. The exponential is the least exact: its argument is rounded after the product
with log2(e), so that e to the power of 10 is wrong by up to 0.5 %.
"""

from __future__ import annotations

import numpy as np

from dovetail_gpu_fp16.half.arithmetic import exp, rounded
from dovetail_gpu_fp16.half.arithmetic import log as log_of
from dovetail_gpu_fp16.half.products import Attributes, Operands, given


def power_of_e(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `Exp`."""
    return exp(given(inputs[0]))


def log(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `Log`."""
    return log_of(given(inputs[0]))


def sigmoid(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `Sigmoid`."""
    return rounded(1 / rounded(1 + exp(-given(inputs[0]))))


def tanh(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `Tanh`."""
    return _tanh(given(inputs[0]))


def erf(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `Erf`."""
    return _erf(given(inputs[0]))


def gelu(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `Gelu`."""
    values = given(inputs[0])
    if str(attributes.get("approximate") or "none") == "tanh":
        cubic = rounded(rounded(rounded(_half(0.035677408136300125) * values) * values) + _half(0.7978845608028654))
        return rounded(values * rounded(0.5 + rounded(0.5 * _tanh(rounded(values * cubic)))))
    return rounded(rounded(0.5 * values) * rounded(1 + _erf(rounded(values * _half(0.7071067811865475)))))


def elu(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `Elu`."""
    values, alpha = given(inputs[0]), _half(float(attributes.get("alpha", 1.0)))
    return np.where(values >= 0, values, rounded(rounded(exp(values) - 1) * alpha))


def relu(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `Relu`; NaN maps to 0."""
    values = given(inputs[0])
    return np.where(values > 0, values, np.float32(0))


def clip(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `Clip`; NaN maps to the bound."""
    values = given(inputs[0])
    for limit, choose in zip(inputs[1:3], (np.fmax, np.fmin), strict=False):
        values = values if limit is None else choose(values, limit)
    return values


def hard_sigmoid(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `HardSigmoid`."""
    return _hard_sigmoid(given(inputs[0]), float(attributes.get("alpha", 0.2)), float(attributes.get("beta", 0.5)))


def hard_swish(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute `HardSwish`."""
    values = given(inputs[0])
    return rounded(values * _hard_sigmoid(values, 1 / 6, 0.5))


def _hard_sigmoid(values: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    return np.fmax(np.fmin(rounded(rounded(_half(alpha) * values) + _half(beta)), 1), 0).astype(np.float32)


def _tanh(values: np.ndarray) -> np.ndarray:
    power = exp(rounded(-2 * np.abs(values)))
    return rounded(np.sign(values) * rounded(1 - power) / rounded(1 + power))


def _erf(values: np.ndarray) -> np.ndarray:
    size = np.abs(values)
    inner = rounded(1 / rounded(1 + rounded(_half(0.3275911) * size)))
    total: np.ndarray = np.asarray(_half(1.061405429))
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        total = rounded(rounded(total * inner) + _half(factor))
    with np.errstate(over="ignore"):
        tail = rounded(rounded(total * inner) * exp(rounded(-size * size)))
    return np.sign(values) * rounded(1 - tail)


def _half(value: float) -> np.float32:
    return np.float32(np.float16(value))
