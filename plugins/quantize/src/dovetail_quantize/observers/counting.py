"""What observers have in common that look at how often numbers occur."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import Observer

from dovetail_quantize.histogram import Histogram
from dovetail_quantize.slices import slices

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir.formats import Format


class CountingObserver(Observer):
    """Counts all numbers of every slice in a histogram; what follows from it, each observer says in `parameters`.

    Args:
        format_: The format that parameters are wanted for.
    """

    def __init__(self, format_: Format):
        self._format = format_
        self._seen = Histogram()

    def update(self, array: np.ndarray) -> None:
        """See the numbers of one batch, or a weight.

        Raises:
            ValueError: A number is infinite or NaN, or the array has another number of slices than those before.
        """
        if array.size:
            self._seen.update(slices(array, self._format))

    def share(self, other: CountingObserver) -> None:
        """Look at what another observer of the same format counts, instead of counting by itself."""
        self._seen = other._seen
