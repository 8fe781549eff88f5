"""Races: who takes turns, who drops out, and when the rest is noise."""

import itertools
import random

import pytest
from dovetail.plugin import EngineError
from dovetail_tune.candidates import Candidate
from dovetail_tune.outcome import TunedCandidate
from dovetail_tune.race import RaceResult, race
from dovetail_tune.statistics_of_pairs import FEWEST_PAIRS
from dovetail_tune.verdict import doubts_of


def steady(seconds, noise=0.0, seed=0):
    """A runner whose turns differ by up to `noise`, and whose runs within a turn do not."""
    generator = random.Random(seed)
    return lambda runs: [seconds * (1 + noise * generator.random())] * runs


def test_the_fastest_leads_and_the_clearly_slower_drop_out_as_soon_as_an_interval_has_its_confidence():
    result = race({"a": steady(2e-3), "b": steady(1e-3), "c": steady(9e-3)}, rounds=50)
    assert result.leader == "b"
    assert {name: len(turns) for name, turns in result.turns.items()} == dict.fromkeys("abc", FEWEST_PAIRS)
    assert result.ratio("c", "b").median == pytest.approx(9)


def test_a_runner_that_is_kept_stays_to_the_end():
    near = {"a": steady(1e-3, 0.5, 1), "b": steady(1.01e-3, 0.5, 2), "base": steady(1)}
    result = race(near, rounds=12, keep="base")
    assert len(result.turns["base"]) == 12


def test_of_two_that_are_alike_the_ratio_is_not_clear():
    result = race({"a": steady(1e-3, 0.5, 1), "b": steady(1e-3, 0.5, 2)}, rounds=30)
    assert not result.ratio("a", "b").is_clear


def test_one_that_crashes_is_named_and_the_others_go_on():
    runs = iter(range(5))

    def crashing(number):
        if next(runs) == 4:
            raise EngineError("its process ended with signal SIGSEGV")
        return [1e-4] * number

    result = race({"crashing": crashing, "other": steady(1e-3)}, rounds=9)
    assert result.leader == "other"
    assert result.failed == {"crashing": "its process ended with signal SIGSEGV"}
    assert "crashing" not in result.turns


def test_if_all_crash_there_is_no_winner():
    def crashing(number):
        raise EngineError("refused")

    with pytest.raises(EngineError, match="a: refused; b: refused"):
        race({"a": crashing, "b": crashing}, rounds=3)


@pytest.mark.parametrize("first", [1, 3, 8, 13, 400, 2000])
def test_a_runner_whose_first_runs_were_slow_has_no_shorter_turns(first):
    """Times are 1 ms and exponential noise of mean 0.3 ms, as on a busy machine, but for the first runs of one."""

    def busy(seed, first):
        noise, calls = random.Random(seed), itertools.count()
        return lambda runs: [1e-3 * (first if next(calls) < 2 else 1 + noise.expovariate(1 / 0.3)) for _ in range(runs)]

    result = race({"a": busy(1, 1), "b": busy(2, first)}, rounds=200)
    assert result.ratio("b", "a").median == pytest.approx(1, abs=0.03)


def test_of_a_slow_runner_a_turn_is_one_run_until_it_drops_out():
    turns = {"slow": [], "fast": []}

    def timed(name, seconds):
        return lambda runs: (turns[name].append(runs), [seconds] * runs)[1]

    race({"slow": timed("slow", 2.0), "fast": timed("fast", 1e-3), "near": steady(1e-3, 0.5)}, rounds=9, keep="near")
    assert turns["slow"] == [1] * 7, "one to find out, and six turns"
    assert turns["fast"][:7] == [1] * 7 and turns["fast"][-1] == 30


def test_when_the_time_is_up_one_round_was_run():
    result = race({"a": steady(1e-3), "b": steady(2e-3)}, rounds=9, is_over=lambda: True)
    assert result.leader == "a" and len(result.turns["b"]) == 1


def test_the_spread_of_a_time_is_that_of_its_turns_and_unknown_for_a_few():
    result = RaceResult("a", {"a": [1.0] * 3 + [2.0] * 3 + [3.0] * 3, "b": [1.0] * 6, "c": [1.0] * 5})
    assert (result.spread("a"), result.spread("b"), result.spread("c")) == (0.5, 0.0, float("inf"))


def test_interference_in_a_turn_does_not_count():
    def disturbed(runs):
        return [1e-3, *[0.5] * (runs - 1)]

    assert race({"a": disturbed}, rounds=6).seconds("a") == 1e-3


@pytest.mark.parametrize(
    ("spread", "said"),
    [
        (0.0, "cpu-bf16 is as fast: it takes 1.000 (1.000 to 1.000 in 8 pairs) of the time"),
        (
            0.3,
            "timings are too noisy to tell cpu-bf16 from host: it takes 1.000 (0.700 to 1.300 in 8 pairs) of its time",
        ),
    ],
)
def test_a_race_that_cannot_tell_two_apart_says_so_with_the_spread(spread, said):
    winner, other = (TunedCandidate(Candidate(name, (name,)), 1.0) for name in ("host", "cpu-bf16"))
    turns = {"host": [1.0] * 8, "cpu-bf16": [1 - spread, 1 + spread] * 4}
    assert doubts_of(winner, [winner, other], RaceResult("host", turns)) == [said]
