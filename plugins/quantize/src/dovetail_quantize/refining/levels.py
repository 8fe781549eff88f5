"""The integers between which the elements of a weight lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.integers import bounds, parameters_of, shaped

if TYPE_CHECKING:
    from dovetail.planning.holdings import Holding


class Levels:
    """A weight on the grid of its integers.

    Args:
        weight: The weight.
        holding: The format in which it is held, with the parameters.

    Attributes:
        down: The largest integers that are not above it, or the nearest that the format has.
        up: The smallest that are above these, as far as the format goes.
    """

    def __init__(self, weight: np.ndarray, holding: Holding):
        self._scale, self._zero = (shaped(part, holding.format, weight.shape) for part in parameters_of(holding))
        self._scale = self._scale.astype(np.float32)
        self._exact = weight.astype(np.float32) / self._scale + self._zero
        self._bounds = smallest, largest = bounds(holding.format)
        self._dtype = np.min_scalar_type(smallest) if smallest < 0 else np.min_scalar_type(largest)
        self.down = np.clip(np.floor(self._exact), smallest, largest)
        self.up = np.minimum(self.down + 1, largest)

    @property
    def real(self) -> Callable[[np.ndarray], np.ndarray]:
        """Gives the numbers that integers stand for, without keeping the weight in memory."""
        scale, zero = self._scale, self._zero
        return lambda levels: (levels - zero).astype(np.float32) * scale

    def stored(self, levels: np.ndarray) -> np.ndarray:
        """Integers in the smallest type that has all of the format."""
        return levels.astype(self._dtype)

    def off(self, levels: np.ndarray) -> np.ndarray:
        """What integers add to the weight."""
        return (levels - self._exact).astype(np.float32) * self._scale

    def fit(self, levels: np.ndarray) -> bool:
        """Whether integers are those of this weight, each rounded down or up.

        A step of a hundredth is left for weights that another machine has scaled.
        """
        return bool((np.abs(levels - np.clip(self._exact, *self._bounds)) <= 1.01).all())
