"""Scaling of channels for products with only weights in integers: channels with large numbers lose less.

Source: Lin et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration", 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.integers import dequantize_array, quantize_array
from dovetail_quantize.observers.extremes import MinMax

if TYPE_CHECKING:
    from dovetail.ir import Format
    from dovetail.planning import Parameters

_LARGEST_FACTOR = 2.0**10
_EXPONENTS = tuple(step / 10 for step in range(1, 11))
_RESULTS = 128  # of a product, whose error chooses the exponent


def activation_aware_factors(
    rows: np.ndarray, weights: Sequence[tuple[np.ndarray, Format]]
) -> tuple[np.ndarray, float, float, float]:
    """Return the factors of the channels of weights, from a grid of exponents of their mean magnitude.

    The exponent with the least error of the products is chosen, with the scales that minima and maxima give.

    Args:
        rows: A sample of the products' inputs, samples by channels.
        weights: The weights of the products, each with its format: blocks run along the channels that are read, scales
            per channel along the results.

    Returns:
        The factors, the energy of the sampled results, and that of their error without and with the factors.
    """
    magnitude = np.abs(rows).mean(axis=0, dtype=np.float64)
    signal, before = _error(rows, weights, np.ones(len(magnitude), np.float32))
    tried = [normalized_factors(magnitude**exponent) for exponent in _EXPONENTS]
    errors = [_error(rows, weights, by)[1] for by in tried]
    best = int(np.argmin(errors))
    return tried[best], signal, before, errors[best]


def _error(rows: np.ndarray, weights: Sequence[tuple[np.ndarray, Format]], by: np.ndarray) -> tuple[float, float]:
    """Return the energy of some results of all products, and of their error with scaled channels."""
    signal = error = 0.0
    given = rows / by
    for weight, format_ in weights:
        assert format_.axis is not None, "weights have a scale per channel or block"
        results = format_.axis % 2 if format_.group is None else 1 - format_.axis % 2
        energy, lost = error_of_product(rows, given, weight, results, format_, by)
        signal, error = signal + energy, error + lost
    return signal, error


def error_of_product(
    rows: np.ndarray, given: np.ndarray, weight: np.ndarray, results: int, format_: Format, by: np.ndarray
) -> tuple[float, float]:
    """Return the energy of some results of a product, and of their error with channels that move into its weight.

    Args:
        rows: A sample of what it reads, samples by channels.
        given: The same, divided by the factors, as the product will read it.
        weight: Its weight, of two axes.
        results: The axis of the weight along the results.
        format_: The format of the weight, whose scales follow from minima and maxima.
        by: The factors of the channels.
    """
    has_one_scale = format_.axis is None  # which follows from all results
    count = weight.shape[results]
    kept = np.arange(count) if has_one_scale else np.unique(np.linspace(0, count - 1, _RESULTS).astype(int))
    part = np.take(weight, kept, axis=results)
    scaled = part * (by if results == 0 else by[:, None])
    observer = MinMax(format_)
    observer.update(scaled)
    held = rounded(scaled, format_, observer.parameters())
    exact, found = (one.T if results == 0 else one for one in (part, held))
    products = rows @ exact
    lost = (products - given @ found).astype(np.float64)
    return float((products.astype(np.float64) ** 2).sum()), float((lost**2).sum())


def normalized_factors(by: np.ndarray) -> np.ndarray:
    """Return factors with a geometric mean of 1, since only their ratios matter, and 1 where there is none."""
    by = np.where(np.isfinite(by) & (by > 0), by, 1.0)
    return np.clip(by / np.exp(np.log(by).mean()), 1 / _LARGEST_FACTOR, _LARGEST_FACTOR).astype(np.float32)


def rounded(array: np.ndarray, format_: Format, parameters: Parameters) -> np.ndarray:
    """Quantize and dequantize an array."""
    return dequantize_array(quantize_array(array, format_, parameters), format_, parameters)
