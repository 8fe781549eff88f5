"""The observer `minmax`: the extrema of all numbers seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.integers import parameters_of_range

if TYPE_CHECKING:
    from dovetail.ir.formats import Format
    from dovetail.planning.holdings import Parameters

__all__ = ["MinMax"]


class MinMax:
    """Covers every number that was seen, per tensor or per index along the axis of the format.

    Args:
        format_: The format that parameters are wanted for.
    """

    def __init__(self, format_: Format):
        self._format = format_
        self._low: np.ndarray | None = None
        self._high: np.ndarray | None = None

    def update(self, array: np.ndarray) -> None:
        """See the numbers of one batch, or a weight."""
        if not array.size:
            return
        axes = None
        if self._format.axis is not None:
            axis = self._format.axis % array.ndim
            axes = tuple(index for index in range(array.ndim) if index != axis)
        low, high = array.min(axis=axes), array.max(axis=axes)
        self._low = low if self._low is None else np.minimum(self._low, low)
        self._high = high if self._high is None else np.maximum(self._high, high)

    def parameters(self) -> Parameters:
        """The parameters for what was seen.

        Raises:
            ValueError: Nothing was seen, or a number that is not finite.
        """
        if self._low is None:
            raise ValueError("no number was seen")
        if not (np.isfinite(self._low).all() and np.isfinite(self._high).all()):
            raise ValueError("a number is infinite or NaN")
        return parameters_of_range(self._format, self._low, self._high)
