"""The observer `mix`: `kl` or `minmax`, whichever has the smaller error for a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dovetail_quantize import Entropy, integer_bounds, parameters_of_range

if TYPE_CHECKING:
    from dovetail.planning import Parameters


class Mixture(Entropy):
    """Covers the range of `kl` or that of `minmax`, whichever has the smaller mean squared error.

    Source: `calibration_type: mix` of hb_mapper, which chooses between the same two for every node by an undocumented
    criterion.

    Args:
        format_: The format to find parameters for.
    """

    def parameters(self) -> Parameters:
        """Return the parameters for the numbers seen so far.

        Raises:
            ValueError: No number was seen.
        """
        candidates = super().parameters(), parameters_of_range(self._format, *self._seen.range())
        return min(candidates, key=self._error)

    def _error(self, parameters: Parameters) -> float:
        """Return the sum of squared errors over all slices."""
        smallest, largest = integer_bounds(self._format)
        scale, zero = (np.asarray(part, np.float64)[:, None] for part in parameters)
        numbers, counts, _ = self._seen.points()
        integers = np.clip(np.rint(numbers / scale) + zero, smallest, largest)
        return float(np.sum(((integers - zero) * scale - numbers) ** 2 * counts))
