"""The range of an array: masks, infinities and NaN are no quantities, zero has no magnitude."""

import math

import numpy as np
import pytest
from dovetail_precision.ranges.range import range_of_array


@pytest.mark.parametrize(
    ("values", "low", "high", "smallest"),
    [
        ([1.5, -2.0, 0.25], -2.0, 1.5, 0.25),
        ([0.0, 0.0], 0.0, 0.0, math.inf),
        ([-0.0, 3.0], 0.0, 3.0, 3.0),
        ([-5.0, -4.0], -5.0, -4.0, 4.0),
        ([1.0, -3.4028235e38, 1e30], 0.0, 1.0, 1.0),
        ([np.inf, 2.0, -np.inf, np.nan], 0.0, 2.0, 2.0),
        ([np.nan], 0.0, 0.0, math.inf),
        ([1e-45, 1.0], 1e-45, 1.0, 1.401298464324817e-45),
    ],
)
def test_small_arrays(values, low, high, smallest):
    found = range_of_array(np.array(values, np.float32))
    assert (found.low, found.high, found.smallest) == pytest.approx((low, high, smallest))


def test_an_empty_array_has_none():
    assert range_of_array(np.zeros((0, 4), np.float32)) is None


def test_pieces_are_put_together():
    array = np.random.default_rng(0).standard_normal((3, 100_001)).astype(np.float32)
    array[1, 7], array[2, -1], array[0, 0] = 9.0, -8.0, 1e-9
    for view in (array, array[:, ::2], array.T):
        found = range_of_array(view)
        assert (found.low, found.high) == (view.min(), view.max())
        assert found.smallest == np.abs(view[view != 0]).min()


def test_the_root_of_the_mean_square_counts_all_batches():
    """Masks count as zero in it; what is too large to be squared has none."""
    found = range_of_array(np.array([3.0, -3.0], np.float32)) | range_of_array(np.full((2, 3), 5.0, np.float32))
    assert found.rms == pytest.approx(math.sqrt((2 * 9 + 6 * 25) / 8))
    assert range_of_array(np.array([-3.4028235e38, 4.0], np.float32)).rms == pytest.approx(math.sqrt(8))
    assert math.isnan(range_of_array(np.array([1e25], np.float32)).rms)
