"""Findings of conditioning rules, and the magnitudes that the rules compare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir import float_name, is_onnx

from dovetail_precision.ranges.intervals import Intervals
from dovetail_precision.ranges.range import LOW_TYPES, MASK, Range

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class ConditioningFinding:
    """Nodes that should compute high.

    Attributes:
        nodes: The nodes.
        why: The reason in one clause, shared by all of them.
        types: The low types that it rules out.
    """

    nodes: tuple[ir.Node, ...]
    why: str
    types: frozenset[str] = LOW_TYPES


# The result has the same elements as the first input, or repeats of them, so means and lower bounds carry over.
_DATA_MOVEMENT = frozenset({"Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"})


def moves_data(node: ir.Node) -> bool:
    """Check whether `node` only changes the shape or the float type of its first input."""
    if node.op_type in ("Cast", "CastLike"):
        return is_onnx(node) and float_name(node.inputs[0]) is not None and float_name(node.outputs[0]) is not None
    return node.op_type in _DATA_MOVEMENT and is_onnx(node)


_MAX_ELEMENTS = 1 << 20  # elements; larger weights are not operands of sums


class Magnitudes:
    """Magnitudes of the values of one model.

    Args:
        measured: Measured ranges, by the `id` of a value.
        intervals: The intervals of the values.
    """

    def __init__(self, measured: Mapping[int, Range], intervals: Intervals):
        self._measured = measured
        self._intervals = intervals
        self._weights: dict[int, float] = {}

    def knows(self, value: ir.Value) -> bool:
        """Check whether the magnitude of `value` was measured or has an upper bound."""
        return id(value) in self._measured or self._intervals.of(value).bounded

    def ratio(self, value: ir.Value, result: ir.Value) -> float:
        """Return the ratio of `value` to `result`: of root mean squares, else a lower bound; 0 if unknown."""
        other = self._rms(result)
        one = math.nan if math.isnan(other) else self._rms(value)
        if math.isnan(one):
            one, other = self._intervals.of(value).distance_from_zero, self._intervals.of(result).magnitude
        return one / other if 0 < other < math.inf and one < math.inf else 0.0

    def likely_ratio(self, value: ir.Value, result: ir.Value) -> float:
        """Return an estimate of the ratio of `value` to `result`: the lower bound, else the upper bound, else 1."""
        at_least = self.ratio(value, result)
        most, least = self._intervals.of(value).magnitude, self._intervals.of(result).distance_from_zero
        at_most = most / least if least and most < math.inf else math.inf
        return at_least or (at_most if at_most < math.inf else 1.0)

    def elements(self, value: ir.Value) -> float:
        """Return the number of elements of a value, over all measured batches; 1 if unknown."""
        known = self._measured.get(id(value))
        if known is not None and known.count:
            return float(known.count)
        shape = value.shape
        return float(math.prod(shape.numpy())) if shape is not None and shape.is_static() else 1.0

    def source(self, value: ir.Value) -> str:
        """Return where the magnitude of `value` comes from, as a suffix for a number in a message."""
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
