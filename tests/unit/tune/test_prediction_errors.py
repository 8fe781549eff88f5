"""Predicted times have an interval that is learned from what mixtures took on this machine."""

import numpy as np
import pytest
from dovetail_tune.journal import Journal
from dovetail_tune.prediction_errors import PredictionErrors

KEY = {"machine": "here"}


def learned(ratios, path=None):
    errors = PredictionErrors(Journal(path, KEY))
    for number, ratio in enumerate(ratios):
        errors.learn(str(number), 0.5, 0.5 * ratio)
    return errors


def test_without_trials_the_interval_is_that_of_other_machines():
    found = learned([]).interval(0.5)
    assert found.holds(0.5) and found.holds(0.63) and not found.holds(0.65)
    assert str(found) == "0.50 (0.41 to 0.64)"


@pytest.mark.parametrize("bias", [0.8, 1.0, 1.5])
def test_of_twenty_mixtures_eighteen_lie_in_the_interval(bias):
    """Trials come one after the other; each interval is given before the measurement that it is for is learned."""
    covered = []
    for seed in range(20):
        numbers = np.random.default_rng(seed)
        ratios = bias * np.exp(0.15 * numbers.standard_normal(40))
        errors, inside = learned([]), []
        for number, ratio in enumerate(ratios):
            inside.append(errors.interval(0.5).holds(0.5 * ratio))
            errors.learn(str(number), 0.5, 0.5 * ratio)
        covered.append(sum(inside[20:]))
    assert np.mean(covered) >= 18


def test_trials_that_come_out_as_predicted_narrow_the_interval():
    wide, narrow = learned([]).interval(1.0), learned([1.0] * 30).interval(1.0)
    assert narrow.high - narrow.low < 0.01 < wide.high - wide.low


def test_a_few_trials_of_ones_own_do_not_narrow_the_interval():
    """There are too few of them to know how far the next one may be off; one that is far off widens it at once."""
    before = learned([]).interval(1.0)
    for ratios in ([1.0], [1.0] * 3, [0.9, 1.2]):
        found = learned(ratios).interval(1.0)
        assert found.low == before.low and found.high == before.high
    assert learned([1.5]).interval(1.0).high == 1.5 and learned([0.7]).interval(1.0).low == 0.7


def test_trials_of_ones_own_count_more_than_those_of_other_machines():
    """With ten of them, a tenth of all may lie outside, and what another machine measured at the ends does."""
    before, found = learned([]).interval(1.0), learned([0.95, 1.05] * 5).interval(1.0)
    assert before.low < found.low < 1 < found.high < before.high


def test_what_was_learned_is_kept_by_machine(tmp_path):
    learned([1.3] * 12, tmp_path / "profiles.jsonl")
    assert PredictionErrors(Journal(tmp_path / "profiles.jsonl", KEY)).ratios == pytest.approx([1.3] * 12)
    assert PredictionErrors(Journal(tmp_path / "profiles.jsonl", {"machine": "there"})).ratios == []
