"""The smallest and the largest numbers of slices, over all batches."""

from __future__ import annotations

import numpy as np
from dovetail.text import pluralize


class Extrema:
    """The extrema of every slice so far, in whichever order and portions they come."""

    def __init__(self) -> None:
        self._low = self._high = np.zeros(0)

    def widen(self, low: np.ndarray, high: np.ndarray) -> None:
        """Take in the extrema of one batch.

        Raises:
            ValueError: One is infinite or NaN, or there are more or fewer slices than before.
        """
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError("a number is infinite or NaN")
        if not self._low.size:
            self._low, self._high = low, high
            return
        if low.size != self._low.size:
            raise ValueError(f"one batch has {pluralize(low.size, 'slice')} along the axis, others {self._low.size}")
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)

    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest number of every slice.

        Raises:
            ValueError: Nothing was seen.
        """
        if not self._low.size:
            raise ValueError("no number was seen")
        return self._low, self._high
