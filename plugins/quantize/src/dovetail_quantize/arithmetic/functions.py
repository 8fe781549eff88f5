"""Functions of one number in float64, as ONNX defines them, for the tables of quantised functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir.required import input_of

from dovetail_quantize.arithmetic.not_integer import NotIntegerError

if TYPE_CHECKING:
    from dovetail_quantize.arithmetic.lowering import Lowering


Function = Callable[["Lowering", np.ndarray], np.ndarray]
"""Takes the node and real numbers; gives as many."""

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    grown = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1.0, grown) / (1.0 + grown)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _number(at: Lowering, name: str, default: float) -> float:
    # Attributes are float32; the default of the operator is one, too.
    return float(np.float32(at.node.attributes.get_float(name, default)))


def _elu(at: Lowering, x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, _number(at, "alpha", 1.0) * np.expm1(np.minimum(x, 0)), x)


def _celu(at: Lowering, x: np.ndarray) -> np.ndarray:
    alpha = _number(at, "alpha", 1.0)
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(np.minimum(x, 0) / alpha), 0)


def _selu(at: Lowering, x: np.ndarray) -> np.ndarray:
    alpha, gamma = _number(at, "alpha", 1.67326319217681884765625), _number(at, "gamma", 1.05070102214813232421875)
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _hard_sigmoid(at: Lowering, x: np.ndarray) -> np.ndarray:
    return np.clip(_number(at, "alpha", 0.2) * x + _number(at, "beta", 0.5), 0, 1)


def _gelu(at: Lowering, x: np.ndarray) -> np.ndarray:
    if at.node.attributes.get_string("approximate", "none") == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _shrink(at: Lowering, x: np.ndarray) -> np.ndarray:
    bias, lambd = _number(at, "bias", 0.0), _number(at, "lambd", 0.5)
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0.0))


def _clip(at: Lowering, x: np.ndarray) -> np.ndarray:
    given = at.node.inputs
    low, high = (_scalar(at, index) if index < len(given) and given[index] is not None else None for index in (1, 2))
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _scalar(at: Lowering, index: int) -> float:
    array = at.constant(index)
    if array is None or array.size != 1:
        raise NotIntegerError(f"its input '{input_of(at.node, index).name}' is not one constant number")
    return float(array.item())


def _pow(at: Lowering, x: np.ndarray) -> np.ndarray:
    return np.power(x, _scalar(at, 1))


def _prelu(at: Lowering, x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, x * _scalar(at, 1), x)


def _plain(function: Callable[[np.ndarray], np.ndarray]) -> Function:
    return lambda at, x: function(x)


FUNCTIONS: dict[str, Function] = {
    **{
        name: _plain(getattr(np, name.lower()))
        for name in ("Abs", "Ceil", "Cos", "Cosh", "Exp", "Floor", "Log", "Reciprocal", "Sign", "Sin", "Sinh", "Sqrt",
                     "Tan", "Tanh")
    },
    "Acos": _plain(np.arccos),
    "Acosh": _plain(np.arccosh),
    "Asin": _plain(np.arcsin),
    "Asinh": _plain(np.arcsinh),
    "Atan": _plain(np.arctan),
    "Atanh": _plain(np.arctanh),
    "Celu": _celu,
    "Clip": _clip,
    "Elu": _elu,
    "Erf": _plain(_erf),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda at, x: x * np.clip(x / 6 + 0.5, 0, 1),
    "LeakyRelu": lambda at, x: np.where(x < 0, _number(at, "alpha", 0.01) * x, x),
    "Mish": lambda at, x: x * np.tanh(_softplus(x)),
    "Neg": _plain(np.negative),
    "PRelu": _prelu,
    "Pow": _pow,
    "Relu": lambda at, x: np.maximum(x, 0),
    "Round": _plain(np.rint),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _plain(_sigmoid),
    "Softplus": _plain(_softplus),
    "Softsign": lambda at, x: x / (1 + np.abs(x)),
    "Swish": lambda at, x: x * _sigmoid(_number(at, "alpha", 1.0) * x),
    "ThresholdedRelu": lambda at, x: np.where(x > _number(at, "alpha", 1.0), x, 0.0),
}  # fmt: skip
"""By operator."""
