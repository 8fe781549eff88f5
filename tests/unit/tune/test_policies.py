"""What a tuning tries next, by what it has measured."""

from types import SimpleNamespace

import pytest
from dovetail.plugin import load_plugins
from dovetail_tune import TuningContext, policies
from dovetail_tune.candidates import candidates_of
from dovetail_tune.policies import Combined, Defaults, Mixed, Options, Raised, RaisedOptions
from dovetail_tune.statistics_of_pairs import Ratio
from dovetail_tune.trial import FAILED, PREPARED, CandidateTrial

PLUGINS = load_plugins()
FOUND = candidates_of(PLUGINS.registry, ["cpu-int8", "cpu-bf16"])
BY_NAME = {one.name: one for one in FOUND.found}
ORT = "cpu-int8:runtime=onnxruntime"


def context(left=100.0, is_mixed=True):
    """A tuning with so many seconds left."""
    runner = SimpleNamespace(deadline=SimpleNamespace(remaining=left, is_over=left <= 0))
    return TuningContext(None, PLUGINS, FOUND, runner, is_mixed, lambda _: None)


def trial(candidate, time, missed=(), snr=40.0, seconds=1.0):
    """A trial that took so many times the baseline's time."""
    return CandidateTrial(
        candidate, PREPARED, "", snr, None, missed, against=Ratio(time, time, time, 9), compile_seconds=seconds
    )


def proposed(policy, trials, time=lambda candidate: 0.9):
    """What a policy proposes, while its candidates take the given times; their names."""
    trials, names = list(trials), []
    while (candidate := policy.propose(trials)) is not None:
        names.append(candidate.name)
        trials.append(trial(candidate, time(candidate)))
    return names


def test_every_candidate_says_why_it_is_tried():
    assert all(one.why for one in FOUND.found)
    assert BY_NAME[ORT].why == "the backend with another runtime"
    assert all("why" not in one.as_dict() for one in FOUND.found), "a reason makes no other candidate"


@pytest.mark.parametrize(("policy", "candidates"), [(Defaults, FOUND.defaults), (Options, FOUND.others)])
def test_a_list_is_proposed_in_its_order(policy, candidates):
    assert proposed(policy(context()), []) == [one.name for one in candidates]


@pytest.mark.parametrize(
    ("trials", "left", "policy", "names"),
    [
        ([("cpu-int8", 0.5, ("--min-snr",), 29.0)], 100.0, Raised, ["cpu-int8 raised"]),
        ([("cpu-int8", 0.5, (), 40.0)], 100.0, Raised, []),  # it meets the goal
        ([("cpu-int8", 1.1, ("--min-snr",), 29.0)], 100.0, Raised, []),  # raised it is slower still
        ([("cpu-int8", 0.5, ("--min-snr",), 29.0)], 10.0, Raised, []),  # a search takes twelve compilations
        ([("cpu-int8", 0.5, ("--min-snr",), 29.0)], 10.0, RaisedOptions, ["cpu-int8 raised"]),
        ([("cpu-int8", 0.5, ("--min-snr",), 29.0)], 0.0, RaisedOptions, []),
        (
            [("cpu-int8", 0.5, ("--min-snr",), 10.0), (ORT, 0.5, ("--min-snr",), 29.0)],
            100.0,
            Raised,
            [f"{ORT} raised", "cpu-int8 raised"],
        ),
    ],
)
def test_what_misses_the_goal_by_little_is_raised_first(trials, left, policy, names):
    known = [trial(BY_NAME[name], time, missed, snr) for name, time, missed, snr in trials]
    found, policy = [], policy(context(left))
    while (candidate := policy.propose(known)) is not None:
        found.append(candidate.name)
        assert "misses the goal" in candidate.why
    assert found == names


def test_the_fastest_option_is_combined_as_long_as_that_gains():
    trials = [trial(one, 0.8 if one.name == ORT else 0.95) for one in FOUND.others]

    def time(candidate):
        """Each of two options gains."""
        gains = ("attention=floats", "activations=asymmetric")
        return 0.8 - 0.1 * sum(gain in candidate.name for gain in gains)

    _, *names = proposed(Combined(context()), [trial(BY_NAME["cpu-int8"], 0.9), *trials], time)
    two = [name for name in names if name.count("=") == 2]
    three = [name for name in names if name.count("=") == 3]
    assert f"{ORT},attention=floats" in two and f"{ORT},weight_range=reduced" not in two, "the latter was tried"
    assert all("attention=floats" in name or "activations=asymmetric" in name for name in three)
    options = [frozenset(name.partition(":")[2].split(",")) for name in names]
    assert len(set(options)) == len(options), "in whatever order, none is tried twice"


TIMES = {ORT: 0.6, "cpu-int8:attention=floats": 0.65, "cpu-int8:channels=equalized": 0.7}


def test_all_options_that_gain_alone_are_tried_together_first():
    """Then the fastest with each of the others, the best ones first."""
    default = trial(BY_NAME["cpu-int8"], 0.75)
    trials = [default, *(trial(one, TIMES.get(one.name, 0.9)) for one in FOUND.others)]
    policy = Combined(context())
    first, second, third = (policy.propose(trials) for _ in range(3))
    assert first.name == f"{ORT},attention=floats,channels=equalized"
    assert first.why == f"{ORT} is the fastest so far, and may gain by all other options that gain alone"
    assert [second.name, third.name] == [f"{ORT},attention=floats", f"{ORT},channels=equalized"]


def test_of_two_values_of_an_option_the_faster_one_is_combined():
    faster = {ORT: 0.6, "cpu-int8:activations=dynamic": 0.65, "cpu-int8:activations=asymmetric": 0.7}
    times = {**faster, "cpu-int8:attention=floats": 0.7}
    trials = [trial(one, times.get(one.name, 0.9)) for one in (BY_NAME["cpu-int8"], *FOUND.others)]
    assert "activations=dynamic" in Combined(context()).propose(trials).name


@pytest.mark.parametrize("trials", [[], [trial(BY_NAME["cpu-int8"], 0.5)], [trial(BY_NAME[ORT], 1.2)]])
def test_without_a_fast_option_nothing_is_combined(trials):
    assert proposed(Combined(context()), trials) == []


def test_mixtures_learn_from_what_each_took(monkeypatch):
    learned = []
    plans = [BY_NAME["cpu-int8"], BY_NAME["cpu-bf16"]]
    mixing = SimpleNamespace(
        candidates=lambda trials: iter(plans), learn=lambda one: learned.append(one.status), notes=["a note"]
    )
    monkeypatch.setattr(policies, "Mixing", lambda *_: mixing)
    policy, trials = Mixed(context()), []
    for candidate, status in zip(plans, (PREPARED, FAILED)):
        assert policy.propose(trials) == candidate
        trials.append(CandidateTrial(candidate, status))
    assert policy.propose(trials) is None
    assert learned == [PREPARED, FAILED]
    assert policy.notes == ["a note"]


def test_where_mixtures_are_not_wanted_none_is_proposed():
    assert Mixed(context(is_mixed=False)).propose([]) is None
