"""The observer `minmax`: the extrema of all numbers seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dovetail.plugin import Observer

from dovetail_quantize.extrema import Extrema
from dovetail_quantize.integers import parameters_of_range
from dovetail_quantize.slices import slices

if TYPE_CHECKING:
    from dovetail.ir.formats import Format
    from dovetail.planning.holdings import Parameters


class MinMax(Observer):
    """Covers every number that was seen, and zero, so nothing saturates.

    Definition: the range from the smallest to the largest number of each slice (Jacob et al., "Quantization and
    Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018, section 3).

    Args:
        format_: The format that parameters are wanted for.
    """

    def __init__(self, format_: Format):
        self._format = format_
        self._seen = Extrema()

    def update(self, array: np.ndarray) -> None:
        """See the numbers of one batch, or a weight.

        Raises:
            ValueError: A number is infinite or NaN, or the array has another number of slices than those before.
        """
        if array.size:
            rows = slices(array, self._format)
            self.extrema(rows.min(axis=1), rows.max(axis=1))

    def extrema(self, low: np.ndarray, high: np.ndarray) -> None:
        """See the smallest and the largest number of every slice of one batch."""
        self._seen.widen(low, high)

    def parameters(self) -> Parameters:
        """The parameters for what was seen.

        Raises:
            ValueError: Nothing was seen.
        """
        return parameters_of_range(self._format, *self._seen.range())
