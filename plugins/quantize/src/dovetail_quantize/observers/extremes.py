"""Observers based on extremes: `minmax`, and `isotone` for the largest number of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.extrema import Extrema
from dovetail_quantize.integers import integer_bounds, parameters_of_range, slices
from dovetail_quantize.observers.merging import MergingObserver, State

if TYPE_CHECKING:
    from dovetail.ir import Format
    from dovetail.planning import Parameters


class MinMax(MergingObserver):
    """Covers every number seen, and zero, so that nothing saturates.

    Definition: the range from the smallest to the largest number of each slice (Jacob et al., "Quantization and
    Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018, section 3).

    Args:
        format_: The format to find parameters for.
    """

    def __init__(self, format_: Format):
        self._format = format_
        self._seen = Extrema()

    def update(self, array: np.ndarray) -> None:
        """Widen the range by the numbers of one batch, or of a weight.

        Raises:
            ValueError: A number is infinite or NaN, or the number of slices changed.
        """
        if array.size:
            rows = slices(array, self._format)
            self.extrema(rows.min(axis=1), rows.max(axis=1))

    def extrema(self, low: np.ndarray, high: np.ndarray) -> None:
        """Widen the range by the extrema of every slice of one batch."""
        self._seen.widen(low, high)

    def state(self) -> State:
        """Return the extrema; see `MergingObserver`."""
        return self._seen.state()

    def merge(self, state: State) -> None:
        """Widen by what another process saw; see `MergingObserver`."""
        self._seen.merge(state)

    def parameters(self) -> Parameters:
        """Return the parameters for the numbers seen so far.

        Raises:
            ValueError: No number was seen.
        """
        return parameters_of_range(self._format, *self._seen.range())


_PER_OCTAVE = 8
_LOWEST, _HIGHEST = -140, 130  # exponents of the candidate scales
_SCALES = 2.0 ** (np.arange(_LOWEST * _PER_OCTAVE, _HIGHEST * _PER_OCTAVE + 1) / _PER_OCTAVE)


class Isotone(MergingObserver):
    """Preserves the arg-max of as many rows as possible, for results of Softmax and other probabilities.

    Definition: a row runs along the last axis. Its largest number a and the next largest b certainly stay distinct if
    the scale is smaller than a - b, so that they round to different integers, and larger than b / (n - 1/2), so that b
    does not saturate at the largest of n positive integers. Of eight candidate scales per octave, one that preserves
    the most rows is taken, and among these the scale of `minmax` or the one nearest to it.

    Source: the observer of this name in OpenPPL's PPQ. PPQ's upper bound is 2 (a - b), which does not guarantee that
    the two stay distinct.

    Args:
        format_: The format to find parameters for. It has one scale, or an axis that is not the last.
    """

    def __init__(self, format_: Format):
        if format_.group is not None or format_.axis == -1:
            raise ValueError(
                "rows along the last axis have one scale each; leave out the axis, or take another observer"
            )
        self._format, self._extrema = format_, Extrema()
        self._changes: np.ndarray | None = None

    def update(self, array: np.ndarray) -> None:
        """Record the two largest numbers of every row of one batch, or of a weight.

        Raises:
            ValueError: A number is negative, infinite or NaN, or the format's axis is the last one.
        """
        if not array.size:
            return
        axis = self._format.axis
        if axis is not None and axis % max(array.ndim, 1) == array.ndim - 1:
            raise ValueError("the axis of the format is the last one, along which rows run")
        rows: np.ndarray = np.asarray(array, np.float64).reshape(array.shape or (1,))
        rows = rows[None] if axis is None else np.moveaxis(rows, axis, 0)
        rows = rows.reshape(rows.shape[0], -1, rows.shape[-1])
        self._extrema.widen(rows.min(axis=(1, 2)), rows.max(axis=(1, 2)))
        if rows.min() < 0:
            raise ValueError(f"{rows.min():.6g} is negative; isotone is for probabilities")
        if self._changes is None:
            self._changes = np.zeros((rows.shape[0], _SCALES.size + 1), np.int64)
        if rows.shape[-1] > 1:
            two = np.partition(rows, -2, axis=-1)[..., -2:]
            for changes, one in zip(self._changes, two, strict=True):
                self._vote(changes, one[:, 1], one[:, 0])

    def parameters(self) -> Parameters:
        """Return the parameters for the numbers seen so far.

        Raises:
            ValueError: No number was seen.
        """
        _, high = self._extrema.range()
        assert self._changes is not None
        whole = np.array(parameters_of_range(self._format, np.zeros_like(high), high).scale)
        ends = [
            self._chosen(np.cumsum(changes[:-1]), scale) * self._positive
            for changes, scale in zip(self._changes, whole, strict=True)
        ]
        found = np.where(high > 0, ends, 0)
        return parameters_of_range(self._format, np.zeros_like(found), found)

    def state(self) -> State:
        """Return extrema and votes; see `MergingObserver`."""
        return {} if self._changes is None else {**self._extrema.state(), "changes": self._changes}

    def merge(self, state: State) -> None:
        """Add what another process saw; see `MergingObserver`."""
        if not state:
            return
        changes = state["changes"]
        if changes.ndim != 2 or changes.shape[1] != _SCALES.size + 1:
            raise ValueError(f"votes of the shape {changes.shape}")
        self._extrema.merge(state)
        self._changes = changes if self._changes is None else self._changes + changes

    @property
    def _positive(self) -> int:
        """Number of integers that represent positive numbers."""
        smallest, largest = integer_bounds(self._format)
        if self._format.scheme == "asymmetric":
            return largest - smallest
        return largest if smallest else largest // 2

    def _vote(self, changes: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
        """Add each row to the votes of all scales that preserve it, as differences between neighboring scales."""
        begins = np.searchsorted(_SCALES, second / (self._positive - 0.5), side="right")
        ends = np.searchsorted(_SCALES, first - second, side="left")
        kept = begins < ends
        np.add.at(changes, begins[kept], 1)
        np.add.at(changes, ends[kept], -1)

    def _chosen(self, votes: np.ndarray, whole: float) -> float:
        """Return the `minmax` scale if both neighboring candidates preserve most rows, else the nearest that does."""
        allowed = np.ones(_SCALES.size, bool)
        if self._format.scheme == "power-of-two":
            allowed[np.arange(_SCALES.size) % _PER_OCTAVE != 0] = False
        best = np.flatnonzero(allowed & (votes == votes[allowed].max()))
        after = int(np.searchsorted(_SCALES, whole))
        if not votes.any() or {after - 1, after} <= set(best.tolist()) or after in best and _SCALES[after] == whole:
            return whole
        return float(_SCALES[best[np.argmin(np.abs(np.log2(_SCALES[best] / whole)))]])
