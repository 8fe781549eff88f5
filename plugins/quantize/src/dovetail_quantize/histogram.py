"""Histograms of slices, with a range that grows with the data."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dovetail_quantize.extrema import Extrema

_FEW = 1 << 14  # numbers per slice that are kept exactly
_WHOLE, _OF_MANY = 4096, 1024  # bins on each side of zero: for a single slice, and per slice of several
_PIECE = 1 << 17  # numbers per step, so that they stay in the cache
_LANES = 4
_LOWEST = -100  # exponent; smaller magnitudes count as zero


class Points(NamedTuple):
    """Real numbers and their counts, one ascending row per slice.

    Attributes:
        positions: The numbers themselves if they are few, else the center of each bin.
        counts: How often each position occurs.
        exact: Whether the positions are the numbers themselves.
    """

    positions: np.ndarray
    counts: np.ndarray
    exact: bool


class Histogram:
    """Histogram of the numbers in each slice, in memory that does not grow with the data.

    Up to 16384 numbers per slice are kept exactly; beyond that they are counted in bins. The bins of a slice span the
    smallest power of two above all magnitudes. When a number exceeds that range, bins are merged in pairs until it
    fits. Bins of the wider range consist of whole bins of the narrower one, and scaling by powers of two does not
    round, so the result equals that of a histogram whose range was known in advance, whatever the order and size of the
    batches. A second pass over the data would not be more accurate.

    Bin `k` covers magnitudes from `k` to `k + 1` widths with the sign of `k`; bin 0 covers both signs.

    Attributes:
        number: Count of numbers seen per slice.
    """

    def __init__(self) -> None:
        self._extrema = Extrema()
        self._few: list[np.ndarray] | None = []
        self.number = 0
        self._counts = np.zeros((0, 0), np.int64)
        self._exponents = np.zeros(0, np.int64)

    def update(self, rows: np.ndarray, with_relu: bool = False) -> None:
        """Count the numbers of a matrix with one row per slice, and if `with_relu` those of its Relu as well.

        Raises:
            ValueError: A number is infinite or NaN, or the number of rows changed.
        """
        if not rows.size:
            return
        rows = np.asarray(rows, np.float32)
        self.number += rows.shape[1] * (1 + with_relu)
        if self._few is None:
            self._count(rows, with_relu)
            return
        self._extrema.widen(*_extrema(rows, with_relu))
        # Copy, because a view would keep the caller's whole array alive and see later writes to it.
        self._few.append(rows if self.number > _FEW else rows.copy())
        if with_relu:
            self._few.append(np.maximum(rows, 0))
        if self.number > _FEW:
            self._count_all()

    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest number of every slice.

        Raises:
            ValueError: No number was seen.
        """
        return self._extrema.range()

    def kept(self) -> np.ndarray | None:
        """Return the numbers themselves, a row per slice, in float64; None if they are counted in bins."""
        return None if self._few is None else np.concatenate(self._few, axis=1).astype(np.float64)

    def points(self) -> Points:
        """Return the numbers seen so far, exactly or as bin centers.

        Raises:
            ValueError: No number was seen.
        """
        self.range()
        if (kept := self.kept()) is not None:
            numbers = np.sort(kept, axis=1)
            return Points(numbers, np.ones(numbers.shape, np.int64), exact=True)
        index, counts, width = self.bins()
        low, high = self.range()
        middles = (index + 0.5 * np.sign(index)) * width[:, None]
        return Points(np.clip(middles, low[:, None], high[:, None]), counts, exact=False)

    def bins(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the bin indices, a row of counts per slice, and the bin width of each slice.

        Raises:
            ValueError: No number was seen.
        """
        self.range()
        if self._few is not None:
            self._count_all()
        side = self._counts.shape[1] // 2
        return np.arange(1 - side, side), self._counts[:, 1:], np.ldexp(1.0, self._exponents) / side

    def magnitudes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts of magnitudes from `k` to `k + 1` widths, a row per slice, and the width of each slice.

        Raises:
            ValueError: No number was seen.
        """
        index, counts, width = self.bins()
        folded = counts[:, index >= 0].copy()
        folded[:, 1:] += counts[:, index < 0][:, ::-1]
        return folded, width

    def complete(self) -> Histogram:
        """Return a histogram that distinguishes all bins: this one."""
        return self

    def state(self) -> dict[str, np.ndarray]:
        """Return what was counted, for `merge` of another process; empty if nothing was."""
        if not self.number:
            return {}
        if self._few is not None:
            return {"kept": np.concatenate(self._few, axis=1)}
        counted = {"counts": self._counts, "exponents": self._exponents, "number": np.array([self.number])}
        return {**self._extrema.state(), **counted}

    def merge(self, state: Mapping[str, np.ndarray]) -> None:
        """Count what another process saw; the result is that of one histogram that saw both.

        Raises:
            ValueError: The state is not valid, or of another number of slices.
        """
        if not state:
            return
        if "kept" in state:
            self.update(state["kept"])
            return
        slices = len(state["counts"])
        if self._few is not None:
            self._count_all(slices)
        if state["counts"].shape != self._counts.shape or state["exponents"].shape != (slices,):
            raise ValueError(f"a histogram of the shape {state['counts'].shape}, and not {self._counts.shape}")
        self._fit(state["low"], state["high"])
        other = self._other(state)
        for row in range(slices):
            exponent = max(self._exponents[row], other._exponents[row])
            for one in (self, other):
                if one._exponents[row] < exponent:
                    one._widen(row, exponent)
        self._add(other)
        self.number += int(state["number"][0])

    def _add(self, other: Histogram) -> None:
        """Add the counts of a histogram with the same bins."""
        self._counts += other._counts

    def _other(self, state: Mapping[str, np.ndarray]) -> Histogram:
        """Return the histogram of a state."""
        other = Histogram()
        other._counts, other._exponents = state["counts"].copy(), state["exponents"].copy()
        return other

    def _count_all(self, slices: int = 0) -> None:
        kept, self._few = self._few or [], None
        number = kept[0].shape[0] if kept else slices
        side = _WHOLE if number == 1 else _OF_MANY
        self._counts = np.zeros((number, 2 * side), np.int64)
        self._exponents = np.full(number, _LOWEST)
        for rows in kept:
            self._count(rows, with_relu=False)

    def _count(self, rows: np.ndarray, with_relu: bool) -> None:
        self._fit(*_extrema(rows, with_relu))
        before = self._counts.copy() if with_relu else None
        self._count_in_bins(rows)
        if before is not None:
            side = self._counts.shape[1] // 2
            added = self._counts - before
            self._counts[:, side:] += added[:, side:]
            self._counts[:, side] += added[:, :side].sum(axis=1)

    def _count_in_bins(self, rows: np.ndarray) -> None:
        number, bins = self._counts.shape
        side = bins // 2
        factors = np.ldexp(np.float32(side), -self._exponents).astype(np.float32)
        if number == 1:
            self._count_row(rows[0], factors[0])
            return
        room = np.empty(_PIECE, np.float32)
        at_once = max(_PIECE // rows.shape[1], 1)
        for first in range(0, number, at_once):
            some = rows[first : first + at_once]
            counted = self._counts[first : first + at_once]
            begins = (np.arange(len(some)) * bins + side)[:, None]
            for start in range(0, some.shape[1], _PIECE):
                piece = some[:, start : start + _PIECE]
                scaled = room[: piece.size].reshape(piece.shape)
                np.multiply(piece, factors[first : first + at_once, None], out=scaled)
                # The cast truncates toward zero, so halving an index commutes with it.
                index = scaled.astype(np.int32) + begins
                counted += np.bincount(index.reshape(-1), minlength=counted.size).reshape(counted.shape)

    def _count_row(self, row: np.ndarray, factor: np.float32) -> None:
        """Count the numbers of a single slice; the factor is the number of bins per unit.

        Neighboring elements are counted in separate lanes: incrementing the same bin twice in a row stalls the
        processor, and the output of a Relu has many zeros.
        """
        bins = self._counts.shape[1]
        begins = _begins(bins)
        room, index = np.empty(_PIECE, np.float32), np.empty(_PIECE, np.int32)
        for start in range(0, row.size, _PIECE):
            piece = row[start : start + _PIECE]
            scaled, found = room[: piece.size], index[: piece.size]
            np.multiply(piece, factor, out=scaled)
            # The cast truncates toward zero, so halving an index commutes with it.
            np.copyto(found, scaled, casting="unsafe")
            found += begins[: piece.size]
            self._counts[0] += np.bincount(found, minlength=_LANES * bins).reshape(_LANES, bins).sum(axis=0)

    def _fit(self, low: np.ndarray, high: np.ndarray) -> None:
        """Widen the ranges of the slices so that they contain these numbers."""
        self._extrema.widen(low, high)
        low, high = self._extrema.range()
        exponents = np.maximum(np.frexp(np.maximum(-low, high))[1], _LOWEST)
        for row in np.flatnonzero(exponents > self._exponents).tolist():
            self._widen(row, exponents[row])

    def _widen(self, row: int, exponent: int) -> None:
        """Merge the bins of a row until its range reaches two to the power of `exponent`."""
        side = self._counts.shape[1] // 2
        index = np.arange(2 * side) - side
        halved = np.sign(index) * (np.abs(index) >> min(exponent - self._exponents[row], 62))
        merged = np.zeros(2 * side, np.int64)
        np.add.at(merged, halved + side, self._counts[row])
        self._counts[row], self._exponents[row] = merged, exponent


def _extrema(rows: np.ndarray, with_relu: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest number of each slice, and of its Relu."""
    low, high = rows.min(axis=1), rows.max(axis=1)
    return low, np.maximum(high, 0) if with_relu else high


@functools.cache
def _begins(bins: int) -> np.ndarray:
    """Return the offset of bin 0 in the lane of each element of a piece."""
    return np.tile(np.arange(_LANES, dtype=np.int32) * bins + bins // 2, _PIECE // _LANES)
