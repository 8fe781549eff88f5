"""Trials: what is compiled and run, and what is remembered."""

from types import SimpleNamespace

import numpy as np
import pytest
from dovetail.ir import Format
from dovetail.plugin import Trial
from dovetail_onnx.opening import open_text
from dovetail_verify import measures
from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.accuracy.trials import AccuracyTrials
from dovetail_verify.measures import Compared
from dovetail_verify.runners import CachedOriginal

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[N,2] x) => (float[N,2] y) { y = Relu (x) }"""


class Played:
    """Trials of a model whose result is off by the number of nodes that are not raised, and what was called."""

    def __init__(self, data):
        self.calls = {"original": 0, "compiled": []}
        original = CachedOriginal(self._original)
        self.trials = AccuracyTrials(Compared(open_text(MODEL, "test"), original, None, data), "high", "a goal")
        self.latest = None

    def _original(self, feeds):
        self.calls["original"] += 1
        return {"y": feeds["x"]}

    def _compiled(self, proposal):
        raised = {name for name, (level, _) in proposal.asked.items() if level == "high"}
        if self.latest is None or self.latest[0] != proposal.compiled_from:
            self.calls["compiled"].append(raised)
            # Node `a` begins the region of a backend: once it is raised, nothing is left there.
            low = [] if "a" in raised else [name for name in "abc" if name not in raised]
            nodes = [SimpleNamespace(name=name, precision=Format.of("float16"), ports={}) for name in low]
            plan = SimpleNamespace(nodes=nodes)
            result = SimpleNamespace(model=None, off=2 - len(raised), verification=None, plan=plan, artifacts=None)
            self.latest = proposal.compiled_from, result
        return self.latest[1]

    def __call__(self, steps):
        """What a search finds."""
        try:
            proposal = next(steps)
            while True:
                trial = Trial(proposal, self._compiled(proposal))
                figure = proposal.measure.of(trial) if proposal.measure is not None else None
                proposal = steps.send(Trial(proposal, trial.compiled, figure))
        except StopIteration as done:
            return done.value


@pytest.fixture
def played(monkeypatch):
    def runner(compiled, ctx):
        return lambda feeds: {"y": feeds["x"] + np.float32(compiled.off)}

    monkeypatch.setattr(measures, "exact_runner", runner)
    return Played


def test_the_original_runs_once_for_every_batch(played):
    batches = [{"x": np.full((1, 2), value, np.float32)} for value in (1, 2, 3)]
    run = played(batches)
    trials, calls = run.trials, run.calls
    assert run(trials.run({"a"})).verification.worst_snr_db < np.inf
    assert run(trials.run({"a", "b"})).verification.worst_snr_db == np.inf
    assert (trials.runs, calls["original"]) == (2, 3)


def test_data_that_is_new_every_time_is_compared_with_itself(played):
    """A function may give other batches whenever it is called."""
    rng = np.random.default_rng(0)
    run = played(lambda: iter([{"x": rng.standard_normal((1, 2)).astype(np.float32)}]))
    trials, calls = run.trials, run.calls
    run(trials.run(()))
    assert run(trials.run({"a", "b"})).verification.worst_snr_db == np.inf
    assert calls["original"] == 2


def test_what_was_tried_is_not_run_again(played):
    run = played({"x": np.ones((1, 2), np.float32)})
    trials, calls = run.trials, run.calls
    first = run(trials.run({"a"}))
    assert run(trials.run(["a"])) is first
    run(trials.run(()))
    assert run(trials.measure({"a"})).noise == first.noise
    assert calls["compiled"] == [{"a"}, set()]
    again = run(trials.run({"a"}))
    assert (trials.runs, len(calls["compiled"])) == (2, 3), "compiled once more, because the result was let go"
    assert again.compiled.verification is first.verification


def test_a_selection_that_leaves_a_backend_nothing_makes_way_for_one_that_leaves_it_some(played):
    run = played({"x": np.ones((1, 2), np.float32)})
    trials = run.trials
    for raised, lowered in (({"a", "b"}, ()), ({"b", "c"}, {"a"}), ({"b"}, ()), ({"a"}, ())):
        run(trials.run(raised, lowered))
    emptied, kept = frozenset("ab"), (frozenset("bc"), frozenset("a"))
    assert trials.with_low_nodes(emptied, Goals(min_snr=60)) == kept, "of those that meet the goal"
    assert trials.with_low_nodes(frozenset("b"), Goals(min_snr=60)) == (frozenset("b"), frozenset()), "it has some"
    assert trials.with_low_nodes(frozenset("abc"), Goals(min_snr=60))[1] == frozenset(), "it was not tried"
