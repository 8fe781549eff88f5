"""How large values are, for comparing them: as measured, or as their intervals say at least and at most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail_precision.ranges.intervals import Intervals
from dovetail_precision.ranges.range import MASK, Range

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Magnitudes"]

_MAX_ELEMENTS = 1 << 20  # elements of a weight; larger ones are no operands of sums


class Magnitudes:
    """Magnitudes of the values of one model.

    Args:
        measured: Ranges that were measured, by the `id` of a value.
        intervals: The intervals of the values.
    """

    def __init__(self, measured: Mapping[int, Range], intervals: Intervals):
        self._measured = measured
        self._intervals = intervals
        self._weights: dict[int, float] = {}

    def knows(self, value: ir.Value) -> bool:
        """Whether the size of `value` is known, at least how large it is at most."""
        return id(value) in self._measured or self._intervals.of(value).bounded

    def ratio(self, value: ir.Value, result: ir.Value) -> float:
        """How many times `result` `value` is: as root mean squares, else at least; 0 where that is not known."""
        other = self._rms(result)
        one = math.nan if math.isnan(other) else self._rms(value)
        if math.isnan(one):
            one, other = self._intervals.of(value).away, self._intervals.of(result).magnitude
        return one / other if 0 < other < math.inf and one < math.inf else 0.0

    def likely_ratio(self, value: ir.Value, result: ir.Value) -> float:
        """How many times `result` `value` is, for an estimate: at most, if at least says nothing; else as large."""
        at_least = self.ratio(value, result)
        most, least = self._intervals.of(value).magnitude, self._intervals.of(result).away
        at_most = most / least if least and most < math.inf else math.inf
        return at_least or (at_most if at_most < math.inf else 1.0)

    def elements(self, value: ir.Value) -> float:
        """How many elements a value has, over all batches where it was measured; 1 where nobody knows."""
        known = self._measured.get(id(value))
        if known is not None and known.count:
            return float(known.count)
        shape = value.shape
        return float(math.prod(shape.numpy())) if shape is not None and shape.is_static() else 1.0

    def source(self, value: ir.Value) -> str:
        """Where the size of `value` comes from, to stand behind a number."""
        return "by its constants" if math.isnan(self._rms(value)) else "on the data"

    def _rms(self, value: ir.Value) -> float:
        known = self._measured.get(id(value))
        if known is not None:
            return known.rms
        if value.const_value is None or value.const_value.size > _MAX_ELEMENTS:
            return math.nan
        if id(value) not in self._weights:
            self._weights[id(value)] = _rms_of(value.const_value)
        return self._weights[id(value)]


def _rms_of(tensor: ir.TensorProtocol) -> float:
    import numpy as np

    if not tensor.size or tensor.dtype.numpy().kind != "f":
        return math.nan
    array = tensor.numpy().astype(np.float64)
    array = array[np.abs(array) < MASK]
    return float(np.sqrt(np.mean(np.square(array)))) if array.size else math.nan
