"""Rounding of weights in blocks, in which later channels compensate for the errors of those already rounded.

Source: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", 2023.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from dovetail.ir import FLOAT32
from dovetail.plugin import anonymous_file

from dovetail_quantize.integers import integer_bounds, scale_shape
from dovetail_quantize.stored_blocks import StoredBlocks

if TYPE_CHECKING:
    from dovetail.ir import Format
    from dovetail.planning import Parameters

_ROWS, _NUMBERS = 2048, 1 << 23  # rows of a sample, and numbers in it
_FEWEST_ROWS = 256
_TOGETHER = 4096  # channels whose second moments are in memory together
_AT_ONCE = 1 << 22  # numbers of a weight
_DAMPING = 0.1  # of the mean energy, which is added to each of them
_QUIET = 0.01  # of the mean energy; channels that the data left quiet count by it
_HELD_BACK = 8  # one row in this many decides whether feedback helps
_RESULTS = 128  # of a product, whose error decides it
FindScales = Callable[[np.ndarray, np.ndarray], "Parameters"]
"""Returns the parameters of a block of a weight, in the layout of the weight; the second array weights errors."""


class SampledRows:
    """A sample of the rows of a value, on disk: every row of the data is as likely in it as any other."""

    extrema = None
    format: Format = FLOAT32

    def __init__(self, channels: int):
        self._channels, self._seen = channels, 0
        self._size = min(_ROWS, max(_FEWEST_ROWS, _NUMBERS // channels))
        self._random = np.random.default_rng(0)
        self._file = anonymous_file()
        self._file.truncate(4 * self._size * channels)
        self._kept = np.memmap(self._file, np.float32, "r+", shape=(self._size, channels))

    def update(self, array: np.ndarray) -> None:
        """Add the rows of a batch; batches with infinities are left out."""
        if array.shape[-1:] != (self._channels,) or not np.isfinite(array).all():
            return
        rows = array.reshape(-1, self._channels)
        at = np.arange(self._seen, self._seen + len(rows))
        places = np.where(at < self._size, at, self._random.integers(0, at + 1))
        self._seen += len(rows)
        kept = places < self._size
        self._kept[places[kept]] = rows[kept]  # the last one stays where several have one place

    @property
    def rows(self) -> np.ndarray:
        """The sample."""
        return self._kept[: min(self._seen, self._size)]


class FedBack(NamedTuple):
    """A rounded weight, and energies on held-out rows: of its results, and of their errors, by nearest and by it."""

    blocks: StoredBlocks
    signal: float
    nearest: float
    chosen: float


class ErrorFeedback:
    """Rounds weights so that their products with the same rows change least.

    Channels are rounded in order. The error of each is spread over those that are not yet rounded, by the inverse of
    their second moments, and the scale of a block is found when its turn comes. A part of the channels is rounded to
    the nearest integers instead where that is better on held-out rows.

    Args:
        rows: A sample of the numbers that the weights are multiplied with, rows by channels.
    """

    def __init__(self, rows: np.ndarray):
        self._rows = rows
        held_back = np.arange(len(rows)) % _HELD_BACK == _HELD_BACK - 1
        self._used, self._held_back = np.flatnonzero(~held_back), np.flatnonzero(held_back)
        energy = np.square(rows, dtype=np.float64).mean(axis=0)
        self._energy = np.maximum(energy / (energy.mean() or 1.0), _QUIET).astype(np.float32)
        self._spread: tuple[slice, np.ndarray] | None = None

    def rounded(self, weight: np.ndarray, format_: Format, find: FindScales) -> FedBack:
        """Round a weight.

        Args:
            weight: The weight, with blocks along the channels.
            format_: Its format.
            find: See `FindScales`.
        """
        assert format_.axis is not None and format_.group is not None, "weights in blocks have both"
        axis, group = format_.axis % 2, format_.group
        shape = scale_shape(format_, weight.shape)
        integers = np.empty(weight.shape, np.uint8 if format_.element.startswith("u") else np.int8)
        blocks = StoredBlocks(integers, np.empty(shape, np.float32), np.empty(shape, np.int16))
        exact, *results = (array if axis == 0 else array.T for array in (weight, *blocks))
        energies = np.zeros(3)
        step = _TOGETHER // group * group
        for start in range(0, len(exact), step):
            part = slice(start, min(start + step, len(exact)))
            places = part, *[slice(part.start // group, part.stop // group)] * 2
            rounding = _Rounding(self._energy[part], format_, find, axis)
            spread = self._spread_of(part)
            found = _compared(rounding, exact[part], self._rows[self._held_back, part], spread)
            energies += found
            at_once = max(1, _AT_ONCE // step)
            for first in range(0, exact.shape[1], at_once):
                columns = slice(first, first + at_once)
                made = rounding.of(exact[part, columns], spread if found[2] < found[1] else None)
                for whole, place, one in zip(results, places, made, strict=True):
                    whole[place, columns] = one
        return FedBack(blocks, *map(float, energies))

    def _spread_of(self, part: slice) -> np.ndarray:
        """Return how errors spread within a part of the channels; the last one is kept for the next weight."""
        if self._spread is None or self._spread[0] != part:
            self._spread = part, _spread(self._rows[self._used, part])
        return self._spread[1]


def _spread(rows: np.ndarray) -> np.ndarray:
    """Return how errors spread: the Cholesky factor of the inverse of the rows' second moments, upper triangular.

    Products of different channels are weighted by N / (N + K), where N is the number of rows and K that of channels,
    as few rows say little about them.
    """
    rows = rows.astype(np.float64)
    number, channels = rows.shape
    moments = rows.T @ rows / max(number, 1)
    energy = np.diagonal(moments).copy()
    moments *= number / (number + channels)
    moments[np.diag_indices(channels)] = energy + (_DAMPING * energy.mean() or 1.0)
    inverse = np.linalg.inv(moments)
    return np.linalg.cholesky((inverse + inverse.T) / 2).T.astype(np.float32)


def _compared(rounding: _Rounding, exact: np.ndarray, rows: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return the energy of some results on rows, and of their errors without feedback and with it."""
    kept = np.unique(np.linspace(0, exact.shape[1] - 1, _RESULTS).astype(int))
    some = exact[:, kept].astype(np.float32)
    errors = [some - rounding.real(*rounding.of(some, feedback)) for feedback in (None, spread)]
    return np.array([np.square(rows @ one, dtype=np.float64).sum() for one in (some, *errors)])


class _Rounding:
    """Rounds columns of a weight, channels by results, block by block."""

    def __init__(self, energy: np.ndarray, format_: Format, find: FindScales, axis: int):
        assert format_.group is not None
        self._energy, self._group, self._find, self._axis = energy, format_.group, find, axis
        self._bounds = integer_bounds(format_)

    def of(self, exact: np.ndarray, spread: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return integers, scales and zero points; errors are fed back where `spread` says how."""
        left = np.array(exact, np.float32, order="C")
        integers = np.empty(left.shape, np.int16)
        scales, zeros = (np.empty((len(left) // self._group, left.shape[1]), kind) for kind in (np.float32, np.int16))
        for number, start in enumerate(range(0, len(left), self._group)):
            block = slice(start, start + self._group)
            scale, zero = scales[number], zeros[number] = self._scales(left[block], self._energy[block])
            errors = self._block(
                left[block], integers[block], scale, zero, None if spread is None else spread[block, block]
            )
            if spread is not None:
                left[block.stop :] -= spread[block, block.stop :].T @ errors
        return integers, scales, zeros

    def real(self, integers: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
        """Return the numbers that integers represent."""
        scale, zero = (np.repeat(part, self._group, axis=0) for part in (scales, zeros))
        return (integers - zero).astype(np.float32) * scale

    def _scales(self, part: np.ndarray, energy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counting = np.broadcast_to(energy[:, None], part.shape)
        found = self._find(part, counting) if self._axis == 0 else self._find(part.T, counting.T)
        return np.asarray(found.scale, np.float32), np.asarray(found.zero_point, np.int16)

    def _block(
        self, left: np.ndarray, integers: np.ndarray, scale: np.ndarray, zero: np.ndarray, spread: np.ndarray | None
    ) -> np.ndarray:
        """Fill the integers of a block; return the errors to feed back into later blocks."""
        smallest, largest = self._bounds
        if spread is None:
            integers[:] = np.clip(np.rint(left / scale) + zero, smallest, largest)
            return np.empty(0, np.float32)
        errors = np.empty_like(left)
        for at in range(len(left)):
            integers[at] = np.clip(np.rint(left[at] / scale) + zero, smallest, largest)
            errors[at] = (left[at] - (integers[at] - zero) * scale) / spread[at, at]
            left[at + 1 :] -= spread[at, at + 1 :, None] * errors[at]
        return errors
