"""The observer: leaves out the outermost magnitudes."""

import numpy as np
from dovetail.plugin import Observer
from dovetail_quantize import parameters_of_range


class Percentile(Observer):
    """The largest of the batches' percentiles; `share` says which, and the backend's file may set it."""

    def __init__(self, format_, share=99.9):
        if not 0 < share <= 100:
            raise ValueError(f"share: {share} is not above 0 and up to 100 percent")
        self._format, self._share = format_, share
        self._largest = 0.0
        self._seen = False

    def update(self, array):
        """See the numbers of one batch."""
        if array.size:
            self._largest = max(self._largest, float(np.percentile(np.abs(array), self._share)))
            self._seen = True

    def parameters(self):
        """A scale for what was seen.

        Raises:
            ValueError: Nothing was seen, or no number.
        """
        if not self._seen or not np.isfinite(self._largest):
            raise ValueError("no finite number was seen")
        return parameters_of_range(self._format, -self._largest, self._largest)
