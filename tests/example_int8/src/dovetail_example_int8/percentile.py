"""The observer: leaves out the outermost thousandth of the magnitudes."""

import numpy as np
from dovetail_quantize.integers import parameters_of_range

SHARE = 99.9


class Percentile:
    """The largest of the batches' percentiles."""

    def __init__(self, format_):
        self._format = format_
        self._largest = 0.0
        self._seen = False

    def update(self, array):
        """See the numbers of one batch."""
        if array.size:
            self._largest = max(self._largest, float(np.percentile(np.abs(array), SHARE)))
            self._seen = True

    def parameters(self):
        """A scale for what was seen.

        Raises:
            ValueError: Nothing was seen, or no number.
        """
        if not self._seen or not np.isfinite(self._largest):
            raise ValueError("no finite number was seen")
        return parameters_of_range(self._format, -self._largest, self._largest)
