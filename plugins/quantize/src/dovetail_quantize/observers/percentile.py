"""The observer `percentile`: a range that leaves out the outermost share of the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.integers import parameters_of_range
from dovetail_quantize.observers.counting import CountingObserver

if TYPE_CHECKING:
    from dovetail.ir.formats import Format
    from dovetail.planning.holdings import Parameters


class Percentile(CountingObserver):
    """Covers a percentage of the numbers of each slice.

    Definition: without a zero point, the range reaches to the smallest magnitude that this percentage of the magnitudes
    does not exceed; with one, each end leaves out half of the rest. In a histogram an end is the outer edge of its bin.
    With fewer numbers than it takes to leave one out (10,000 at 99.99 percent), it is `minmax`; so it is where what is
    covered has nothing but zeros, because the rest is then all that the value says.

    Source: McKinstry et al., "Discovering Low-Precision Networks Close to Full-Precision Networks for Efficient
    Embedded Inference", 2018; Wu et al., "Integer Quantization for Deep Learning Inference: Principles and Empirical
    Evaluation", 2020, section 4.

    Args:
        format_: The format that parameters are wanted for.
        percentile: How much is covered, above 0 and up to 100 percent.
    """

    def __init__(self, format_: Format, percentile: float = 99.99):
        if not 0 < percentile <= 100:
            raise ValueError(f"a percentile of {percentile} is not above 0 and up to 100")
        super().__init__(format_)
        self._share = percentile / 100

    def parameters(self) -> Parameters:
        """The parameters for what was seen.

        Raises:
            ValueError: Nothing was seen.
        """
        low, high = self._seen.range()
        positions, counts, exact = self._seen.points()
        margin = np.zeros(len(low)) if exact else self._seen.bins()[2] / 2
        if self._format.scheme == "asymmetric":
            share = (1 + self._share) / 2
            upper = _outer(_reached(positions, counts, share), margin)
            lower = _outer(_reached(-positions[:, ::-1], counts[:, ::-1], share), margin)
            return self._of_range(np.maximum(-lower, low), np.minimum(upper, high))
        order = np.argsort(np.abs(positions), axis=1, kind="stable")
        magnitudes = np.take_along_axis(np.abs(positions), order, axis=1)
        end = _outer(_reached(magnitudes, np.take_along_axis(counts, order, axis=1), self._share), margin)
        end = np.minimum(end, np.maximum(-low, high))
        return self._of_range(-end, end)

    def _of_range(self, low: np.ndarray, high: np.ndarray) -> Parameters:
        empty = (low >= 0) & (high <= 0)
        smallest, largest = self._seen.range()
        return parameters_of_range(self._format, np.where(empty, smallest, low), np.where(empty, largest, high))


def _outer(middles: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """The upper edges of bins; the bin around zero stays zero."""
    return np.where(middles == 0, 0, middles + margin)


def _reached(positions: np.ndarray, counts: np.ndarray, share: float) -> np.ndarray:
    """The smallest position of each row that `share` of its numbers do not exceed."""
    sums = np.cumsum(counts, axis=1)
    # The share of a count is no whole number, and its rounding error is not one number more.
    wanted = np.ceil(sums[:, -1:] * share - 1e-9 * sums[:, -1:])
    return np.take_along_axis(positions, np.argmax(sums >= wanted, axis=1)[:, None], axis=1)[:, 0]
