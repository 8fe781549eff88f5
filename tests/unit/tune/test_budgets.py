"""Budgets hold, are spread over candidates from the cheapest on, and what was not tried is said. Clocks are made up."""

import math
import re
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.plugin import EngineError, load_plugins
from dovetail_tune import Candidate, TuningPolicy, deadline, local_pool, race, tuning

DIGITS = str(Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx")
IMAGES = np.load(Path(DIGITS).with_name("test.npz"))["image"][:24]


class Clock:
    """Seconds that pass as workers work."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch, tmp_path):
    found = Clock()
    for module in (deadline, race):
        monkeypatch.setattr(module, "time", found)
    monkeypatch.setenv("DOVETAIL_PROFILES", str(tmp_path / "profiles"))
    return found


@pytest.fixture
def costs(monkeypatch, clock):
    """Seconds of a job by candidate, 4 where none are named; a run takes a millisecond, that of bfloat16 half of it."""
    found = {}

    class Worker:
        """Answers as workers do, and compiles nothing."""

        def __init__(self, blocked=()):
            pass

        def ask(self, job, timeout=math.inf):
            if job["job"] == "time":
                clock.now += self.seconds * job["runs"]
                return {"seconds": [self.seconds] * job["runs"]}
            name = job["candidate"]["name"]
            seconds = found.get(name, 4.0)
            clock.now += min(seconds, timeout)
            if seconds > timeout:
                raise EngineError(f"it took longer than {timeout:.0f} s")
            self.seconds = 5e-4 if name.startswith("cpu-bf16") else 1e-3
            if job["job"] == "load":
                return {"bytes": 1, "engines": ["engine"], "seconds": seconds}
            snr = {"host": 140.0}.get(name, 40.0)
            missed = [f"SNR {snr}"] if snr < job["goals"]["min_snr"] else []
            if job["job"] == "judge":
                return {"figure": f"SNR {snr} dB", "missed": missed}
            outputs = [{"snr_db": snr, "top1": 0.9, "answers": False}]
            return {
                "digest": name, "compile_seconds": seconds, "missed": missed, "doubts": [], "bytes": 1,
                "coverage": "", "engines": ["engine"], "verification": {"broken": False, "outputs": outputs},
            }  # fmt: skip

        def close(self):
            pass

    monkeypatch.setattr(local_pool, "Worker", Worker)
    monkeypatch.setattr(tuning, "_loaded", lambda *_: Clock())
    return found


def tuned(**more):
    how = {"min_snr": 25, "mixed": False, **more}
    return dovetail.tune(DIGITS, ["cpu-bf16", "cpu-int8"], data={"image": IMAGES}, **how)


def tried(found):
    return {entry.candidate.name for entry in found.entries} - set(found.not_tried)


@pytest.mark.parametrize("budget", [20, 30, 45, 60, 120, 300])
def test_a_budget_holds_within_a_tenth(clock, costs, budget):
    found = tuned(budget=budget)
    assert clock.now <= 1.1 * budget
    assert found.winner is not None and bool(found.not_tried) == any("were not tried" in text for text in found.notes)


class Endless(TuningPolicy):
    """Always knows one more request."""

    name, order, share = "endless", 5, 0.7

    def propose(self, trials):
        return Candidate(f"request {len(trials)}", ("cpu-bf16",), high=(f"type:{len(trials)}",))


def test_a_policy_that_has_no_end_has_its_share_of_the_budget(clock, costs):
    plugins = load_plugins()
    plugins.registry.tuning_policy("endless", f"{__name__}:Endless")
    found = tuned(budget=60, plugins=plugins)
    assert clock.now <= 66 and len(found.entries) < 60
    assert {"request 1", "cpu-bf16"} <= tried(found) and found.winner is not None


def test_rows_that_may_be_an_embedding_have_no_answers_unless_a_goal_says_so(clock, costs):
    assert {entry.answers for entry in tuned(budget=60).entries} == {None}
    assert {entry.answers for entry in tuned(budget=60, min_top1=0.5).entries} == {None, 0.9}  # None: not tried


def test_the_cheapest_come_first_and_the_winner_is_known_without_a_last_race(clock, costs):
    found = tuned(budget=22)
    assert {"host", "cpu-bf16"} <= tried(found) <= {"host", "cpu-bf16", "cpu-bf16 high"}
    assert found.winner.candidate.name == "cpu-bf16"
    assert any("quick comparisons decide" in text for text in found.notes)


def test_a_candidate_that_takes_long_does_not_get_the_time_of_all_others(clock, costs):
    costs["cpu-bf16"] = 1000.0
    found = tuned(budget=100)
    assert clock.now <= 110 and {"host", "cpu-bf16 high", "cpu-int8"} <= tried(found)
    (slow,) = [entry for entry in found.entries if entry.candidate.name == "cpu-bf16"]
    assert slow.remark == "not tried to the end: it took the time of the others"


def test_where_nothing_that_was_tried_meets_the_goal_time_is_missing_and_not_accuracy(clock, costs):
    found = tuned(budget=22, min_snr=150)
    assert found.winner is None and "lower" not in found.way_out
    (line,) = found.lines()
    says = (
        "the time was up: none of the [23] that were tried meets the goals, and 1[78] of 20 candidates were not tried"
    )
    assert re.fullmatch(says, line) and "--budget" in found.way_out
    with pytest.raises(DovetailError, match="nothing to save: the time was up"):
        found.save("anywhere")


def test_the_command_says_so(clock, costs, monkeypatch, tmp_path, capsys):
    np.savez(tmp_path / "data.npz", image=IMAGES)
    words = ["--backend", "cpu-bf16", "--data", str(tmp_path / "data.npz"), "--min-snr", "150"]
    assert main(["tune", DIGITS, *words, "--budget", "10"]) == 1
    assert "the time was up: none of the 1 that were tried" in capsys.readouterr().err
    assert main(["tune", DIGITS, *words, "--no-mix"]) == 1
    said = capsys.readouterr().err
    assert "error: no candidate meets the goals" in said and "lower the goal" in said


def test_a_host_that_takes_longer_than_the_budget(clock, costs):
    costs["host"] = 50.0
    with pytest.raises(DovetailError, match="before the host had run the model, so that nothing was tried of "):
        tuned(budget=20)
    assert clock.now <= 22
