"""Ratios of paired timings: the median, and an interval that assumes nothing about the noise."""

import random

import pytest
from dovetail_tune.statistics_of_pairs import ratio_of


def test_the_ratio_is_the_median_of_the_pairs_ratios():
    ratio = ratio_of([2, 2, 2, 2, 30, 2, 2], [1, 1, 1, 1, 1, 1, 1])
    assert ratio.median == 2
    assert (ratio.low, ratio.high) == (2, 30)  # seven pairs: all of them
    assert ratio.is_clear and str(ratio) == "2.000 (2.000 to 30.000 in 7 pairs)"


@pytest.mark.parametrize(("pairs", "outside"), [(1, 0), (5, 0), (8, 0), (9, 1), (12, 2), (20, 5), (60, 21)])
def test_the_interval_leaves_out_as_many_pairs_as_the_sign_test_allows(pairs, outside):
    ratio = ratio_of([1 + i for i in range(pairs)], [1] * pairs)
    assert (ratio.low, ratio.high) == (1 + outside, pairs - outside)


def test_the_interval_holds_the_true_ratio_in_95_percent_of_the_cases():
    generator = random.Random(0)

    def measured():
        times = [1.1 * generator.lognormvariate(0, 0.3) for _ in range(20)]
        return ratio_of(times, [generator.lognormvariate(0, 0.3) for _ in range(20)])

    ratios = [measured() for _ in range(500)]
    assert sum(ratio.low <= 1.1 <= ratio.high for ratio in ratios) >= 460


def test_a_slow_phase_of_the_machine_hits_both_of_a_pair():
    slow = [1, 1, 5, 5, 5, 1, 1, 1]
    assert ratio_of([0.9 * s for s in slow], slow).spread < 1e-9


@pytest.mark.parametrize("pairs", [1, 5])
def test_with_too_few_pairs_the_spread_is_unknown_and_nothing_is_clear(pairs):
    ratio = ratio_of([1.228] * pairs, [1.0] * pairs)
    assert ratio.spread == float("inf") and not ratio.is_clear and ratio.text == "1.228 +-?"
    assert str(ratio) == f"1.228 (spread unknown, of {pairs} {'pair' if pairs == 1 else 'pairs'})"
    assert ratio_of([1.228] * 6, [1.0] * 6).text == "1.228 +-0%"


@pytest.mark.parametrize("number", [500, 501, 1074, 1075, 5000, 100_000])
def test_a_model_of_microseconds_gives_any_number_of_pairs(number):
    from dovetail_tune.statistics_of_pairs import _rank

    found = ratio_of([float(n) for n in range(1, number + 1)], [1.0] * number)
    assert abs(found.median - (number + 1) / 2) < 1 and found.pairs == number
    assert abs((found.high - found.low) - 1.96 * number**0.5) < 4
    assert _rank(number) <= number // 2
