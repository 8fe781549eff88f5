"""Policies that plugins bring: what they propose is tried, and what is wrong with one is said of its distribution."""

import json
import warnings
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import PluginWarning, load_plugins
from dovetail_tune import Candidate, Conclusion, TuningPolicy, last_race, trial_runner

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
IMAGES = np.load(DIGITS / "test.npz")["image"][:24]
BACKEND = "cpu-bf16:policies=lean"


class HeadHigh(TuningPolicy):
    """Proposes the fastest backend with the last product in floats."""

    name, order, share = "head-high", 35, 0.7

    def propose(self, trials):
        if any("head high" in trial.candidate.name for trial in trials):
            return None
        self.notes.append("one head is known")
        assert trials[0].candidate.is_baseline
        return Candidate(
            "head high", (BACKEND,), high=("type:Gemm",), why="the vendor's nets need their heads in float32"
        )

    def doubt(self, name, measured):
        return "left out: the vendor knows better" if name == f"{BACKEND} high" else ""

    def conclude(self, ratios, winner):
        return Conclusion(f"{len(ratios)} raced and {'one' if winner else 'none'} won")


class Wrong(TuningPolicy):
    name, order, share = "wrong", 1, 0.5

    def propose(self, trials):
        return BACKEND


class Raising(TuningPolicy):
    name, order, share = "raising", 2, 0.5

    def propose(self, trials):
        raise KeyError("no such table")

    def doubt(self, name, measured):
        raise ValueError("no doubt")


class Twice(TuningPolicy):
    name, order, share = "twice", 90, 0.9

    def propose(self, trials):
        return Candidate("host", ("host",))


class Other(TuningPolicy):
    name, order, share = "other", 91, 0.9

    def propose(self, trials):
        return Candidate("host", (BACKEND,))


class Unhashable(TuningPolicy):
    name, order, share = "unhashable", 92, 0.9

    def propose(self, trials):
        return Candidate("a list", [BACKEND])


class Silent(TuningPolicy):
    """Proposes nothing, and answers nothing as it should."""

    name, order, share = "silent", 93, 0.9

    def propose(self, trials):
        self.notes = None

    def doubt(self, name, measured):
        return None

    def conclude(self, ratios, winner):
        return "all is well"


class Greedy(TuningPolicy):
    name, order, share = "greedy", 94, 20

    def propose(self, trials):
        return None


class Unordered(TuningPolicy):
    name, order, share = "unordered", "first", 0.9

    def propose(self, trials):
        return None


class NoPolicy:
    pass


@pytest.fixture
def tuned(monkeypatch, tmp_path):
    """Tune the digits with policies of a vendor, without the races that take long."""
    monkeypatch.setattr(last_race, "_MEASUREMENTS", 1)
    for module in (last_race, trial_runner):
        monkeypatch.setattr(module, "_SECONDS", 0.0)

    def tune(*policies, owner="dovetail-acme"):
        plugins = load_plugins()
        with plugins.registry.on_behalf_of(owner):
            for policy in policies:
                name = policy.__name__.lower()
                plugins.registry.tuning_policy(name, f"{__name__}:{policy.__name__}")
        data = {"image": IMAGES}
        found = dovetail.tune(DIGITS / "digits.onnx", BACKEND, data=data, min_snr=30, mixed=False, plugins=plugins)
        found.save(tmp_path / "out")
        return json.loads((tmp_path / "out" / "tune.json").read_text())

    return tune


def test_a_policy_of_a_vendor_proposes_what_nothing_else_does(tuned):
    found = tuned(HeadHigh)
    names = [one["name"] for one in found["candidates"]]
    (entry,) = [one for one in found["candidates"] if one["name"] == "head high"]
    assert sorted(names) == sorted(["host", BACKEND, f"{BACKEND} high", "head high"])
    assert entry["why"] == "the vendor's nets need their heads in float32" and entry["seconds"] > 0
    assert "one head is known" in found["notes"]
    assert found["certificate"].endswith(" raced and one won")
    (doubted,) = [one for one in found["candidates"] if one["name"] == f"{BACKEND} high"]
    assert (doubted["remark"], doubted["meets_goals"]) == ("left out: the vendor knows better", False)


def test_what_is_wrong_with_a_policy_ends_it_alone_with_a_note_that_names_its_distribution(tuned):
    found = tuned(Wrong, Raising, Twice, Other, Unhashable, Silent)
    assert found["winner"] is not None and not any(one["remark"] == "None" for one in found["candidates"])
    assert {one["name"] for one in found["candidates"]} == {"host", BACKEND, f"{BACKEND} high"}
    for note in (
        "tuning policy 'wrong' of dovetail-acme: str was proposed, which is no Candidate",
        "tuning policy 'twice' of dovetail-acme: 'host' was proposed twice, and nothing after it was tried",
        "tuning policy 'other' of dovetail-acme: 'host' names another request, too, and nothing after it was tried",
        "tuning policy 'silent' of dovetail-acme: str was concluded, which is no Conclusion",
    ):
        assert note in found["notes"]
    for start in (
        "tuning policy 'raising' of dovetail-acme failed: KeyError: 'no such table'",
        "tuning policy 'raising' of dovetail-acme failed: ValueError: no doubt",
        "tuning policy 'unhashable' of dovetail-acme failed: TypeError: unhashable type",
        "tuning policy 'silent' of dovetail-acme failed: TypeError: 'NoneType' object is not iterable",
    ):
        assert len([note for note in found["notes"] if note.startswith(start)]) == 1, found["notes"]


def test_what_is_no_policy_is_left_out_with_a_warning_that_names_its_distribution(tuned):
    with pytest.warns(PluginWarning) as caught:
        found = tuned(NoPolicy, Unordered, Greedy)
    said = [str(one.message) for one in caught]
    assert "tuning policy 'nopolicy' of dovetail-acme is no TuningPolicy; it is left out" in said
    assert "tuning policy 'unordered' of dovetail-acme has order 'first' and share 0.9; it is left out" in said
    assert "tuning policy 'greedy' of dovetail-acme has order 94 and share 20; it is left out" in said
    assert len(found["candidates"]) == 3


def test_a_policy_of_this_program_that_is_none_is_an_error(tuned):
    with warnings.catch_warnings(), pytest.raises(DovetailError, match="is no TuningPolicy") as caught:
        tuned(NoPolicy, owner="this program")
    assert "dovetail_tune.TuningPolicy" in caught.value.hint


def test_policies_that_come_with_tune_are_registered_like_others():
    registry = load_plugins().registry
    owners = {entry.owner for entry in registry.tuning_policy.entries}
    assert owners == {"dovetail-tune"}
    orders = {name: registry.tuning_policy[name].order for name in registry.tuning_policy}
    assert sorted(orders, key=orders.get) == ["defaults", "raised", "options", "raised-options", "combined", "mixed"]
