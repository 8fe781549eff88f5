"""Noise of pairs: whether the errors of two inexact segments add up or cancel at the outputs of the model.

The noise of two sources together is |a + b|^2 = |a|^2 + |b|^2 + 2 a.b, to first order. The product is that of CLADO
(arXiv 2307.05657), but is computed from the errors that measuring each segment gave, and so takes no further run. Only
the most sensitive choices are paired, since the product of small errors is small.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

MOST = 20  # choices that are paired
_SAMPLED = 1 << 16  # elements of an output and a batch whose errors are kept
Choice = tuple[int, int]
"""A segment and its candidate."""

Pairs = dict[tuple[Choice, Choice], list[float]]
"""Noise that two choices have in addition at each output, relative to its signal; negative where they cancel."""


class ErrorsAtOutputs:
    """Errors that each choice alone leaves at the outputs, of the most sensitive choices, as samples of elements."""

    def __init__(self) -> None:
        self._errors: dict[Choice, list[list[np.ndarray]]] = {}
        self._noise: dict[Choice, float] = {}

    def add(self, choice: Choice, errors: list[list[np.ndarray]], noise: list[float]) -> None:
        """Keep the errors of a choice, unless twenty others are more sensitive.

        Args:
            choice: The choice.
            errors: Per batch and output, the difference relative to the root of the output's signal over all batches.
            noise: The noise at each output.
        """
        total = max(noise, default=0.0)
        if not 0 < total < np.inf:
            return
        self._noise[choice] = total
        self._errors[choice] = [[_sample(error) for error in batch] for batch in errors]
        if len(self._noise) > MOST:
            least = min(self._noise, key=lambda one: self._noise[one])
            del self._noise[least], self._errors[least]

    def pairs(self) -> Pairs:
        """Return what every two kept choices of different segments have in addition."""
        kept = sorted(self._errors)
        return {
            (one, other): _products(self._errors[one], self._errors[other])
            for position, one in enumerate(kept)
            for other in kept[position + 1 :]
            if one[0] != other[0]
        }


def _products(one: list[list[np.ndarray]], other: list[list[np.ndarray]]) -> list[float]:
    """Return twice the scalar product at each output, over all batches."""
    outputs = range(len(one[0])) if one else range(0)
    return [
        2 * sum(float(a[number] @ b[number]) for a, b in zip(one, other) if a[number].size == b[number].size)
        for number in outputs
    ]


def _sample(error: np.ndarray) -> np.ndarray:
    """Return evenly spaced elements, scaled so that scalar products are about those of all elements."""
    flat = error.reshape(-1)
    step = -(-flat.size // _SAMPLED) or 1
    # An odd step visits all columns of images and of rows with a power of two of elements.
    step += step > 1 and step % 2 == 0
    return flat[::step].astype(np.float32) * np.float32(step**0.5)


def as_plain(pairs: Pairs) -> list[list[object]]:
    """Return pairs as a journal has them."""
    return [[*one, *other, noise] for (one, other), noise in pairs.items()]


def from_plain(entry: Mapping[str, object]) -> Pairs:
    """Return the pairs of a journal's entry."""
    found: Pairs = {}
    rows = entry["pairs"]
    assert isinstance(rows, list), "a journal has rows"
    for first, choice, second, other, noise in rows:
        found[(first, choice), (second, other)] = noise
    return found
