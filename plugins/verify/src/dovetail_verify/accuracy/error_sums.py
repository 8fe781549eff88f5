"""How far the result of a node is from the exact one, added up over batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(slots=True)
class ErrorSums:
    """Running sums over pairs of arrays, an exact one and a given one.

    Attributes:
        signal: Sum of squares of the exact numbers.
        noise: Sum of squares of the differences. A number that is not finite, and not the same in both, counts as much
            as the whole signal.
        energy: Sum of squares of the given numbers.
        elements: How many numbers there were.
    """

    signal: float = 0.0
    noise: float = 0.0
    energy: float = 0.0
    elements: int = 0

    def add(self, exact: np.ndarray, given: np.ndarray) -> None:
        """Add one pair of arrays, whose types may differ; arrays of different shapes are left out."""
        import numpy as np

        a, b = np.asarray(exact, np.float64), np.asarray(given, np.float64)
        if a.shape != b.shape:
            return
        both = np.isfinite(a) & np.isfinite(b)
        lost = a.size - int(both.sum()) - int((~both & ((a == b) | (np.isnan(a) & np.isnan(b)))).sum())
        x, y = a[both], b[both]
        signal = float(x @ x)
        self.signal += signal
        self.energy += float(y @ y)
        y -= x
        self.noise += float(y @ y) + lost * max(signal, 1.0)
        self.elements += a.size

    @property
    def share(self) -> float:
        """Noise over signal; 1 for noise where the exact numbers are all zero."""
        return self.noise / self.signal if self.signal else float(self.noise > 0)

    @property
    def snr_db(self) -> float:
        """Signal over noise in decibels; infinite where there is no noise."""
        return math.inf if not self.share else -10 * math.log10(self.share)

    @property
    def cosine(self) -> float:
        """Cosine similarity; 1 where both are zero, 0 where one of them is."""
        if not self.signal or not self.energy:
            return float(self.signal == self.energy)
        # The product follows from the three sums, and need not be added up.
        product = (self.signal + self.energy - self.noise) / 2
        return max(min(product / math.sqrt(self.signal * self.energy), 1.0), -1.0)

    @property
    def mse(self) -> float:
        """Mean squared error."""
        return self.noise / self.elements if self.elements else 0.0
