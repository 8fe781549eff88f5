"""The winner is judged on samples that no candidate saw; at most two results are shown to them."""

from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail_tune.trial_runner import Judgment, TrialRunner

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
IMAGES = np.load(DIGITS / "test.npz")["image"][:24]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with what was measured, which the tests share; what is judged is not in it."""
    return tmp_path_factory.mktemp("measured")


@pytest.fixture
def tuned(monkeypatch, measured):
    """Tune the digits for 30 dB, where these candidates miss the goal on samples that none of them saw."""
    monkeypatch.setenv("DOVETAIL_PROFILES", str(measured / "profiles"))
    right, shown = TrialRunner.judged, []

    def tune(missing=()):
        def judged(self, candidate):
            shown.append(candidate.name)
            misses = candidate.name in missing or missing == "all" and not candidate.is_baseline
            return Judgment("SNR 12.0 dB", ("'y' has SNR 12.0 dB",)) if misses else right(self, candidate)

        monkeypatch.setattr(TrialRunner, "judged", judged)
        how = {"min_snr": 30, "mixed": False, "journal": measured / "journal"}
        return dovetail.tune(DIGITS / "digits.onnx", "cpu-bf16", data={"image": IMAGES}, **how), shown

    return tune


def test_the_winner_says_what_it_has_on_samples_that_no_candidate_saw(tuned):
    found, shown = tuned()
    assert shown == [found.winner.candidate.name]
    (line,) = [line for line in found.lines() if line.startswith("on samples that no candidate saw: ")]
    assert line.endswith(found.judged) and ("SNR" in line or "exact" in line)
    (note,) = [note for note in found.notes if note.startswith("the table compares candidates on other samples")]
    assert "8 of 24" in note and "held out from calibration and search" in note


def test_what_misses_the_goal_there_does_not_win(tuned):
    first = tuned()[0].winner.candidate.name
    found, _ = tuned([first])
    assert found.winner.candidate.name != first
    (entry,) = [entry for entry in found.entries if entry.candidate.name == first]
    assert not entry.meets and entry.remark == "on samples that no candidate saw: 'y' has SNR 12.0 dB"


def test_after_two_that_miss_only_the_original_is_left(tuned):
    found, shown = tuned("all")
    assert len([name for name in shown if name != "host"]) <= 2
    assert found.winner.candidate.is_baseline
