"""Trials: what is compiled and run, and what is remembered."""

from types import SimpleNamespace

import numpy as np
import pytest
from dovetail.ir import Format
from dovetail_onnx.opening import open_text
from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.accuracy.trials import AccuracyTrials

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[N,2] x) => (float[N,2] y) { y = Relu (x) }"""


@pytest.fixture
def played():
    """Trials of a model whose result is off by the number of nodes that are not raised, and what was called."""
    calls = {"original": 0, "compiled": []}

    def original(feeds):
        calls["original"] += 1
        return {"y": feeds["x"]}

    def compile_(raised, lowered, searching):
        calls["compiled"].append(set(raised))
        # Node `a` begins the region of a backend: once it is raised, nothing is left there.
        low = [] if "a" in raised else [name for name in "abc" if name not in raised]
        nodes = [SimpleNamespace(name=name, precision=Format.of("float16"), ports={}) for name in low]
        plan = SimpleNamespace(nodes=nodes)
        return SimpleNamespace(model=None, off=2 - len(raised), verification=None, plan=plan, artifacts=None)

    def runner(compiled):
        return lambda feeds: {"y": feeds["x"] + np.float32(compiled.off)}

    def make(data):
        return AccuracyTrials(open_text(MODEL, "test"), compile_, original, runner, data), calls

    return make


def test_the_original_runs_once_for_every_batch(played):
    batches = [{"x": np.full((1, 2), value, np.float32)} for value in (1, 2, 3)]
    trials, calls = played(batches)
    assert trials.run({"a"}).verification.worst_snr_db < trials.run({"a", "b"}).verification.worst_snr_db == np.inf
    assert (trials.runs, calls["original"]) == (2, 3)


def test_data_that_is_new_every_time_is_compared_with_itself(played):
    """A function may give other batches whenever it is called."""
    rng = np.random.default_rng(0)
    trials, calls = played(lambda: iter([{"x": rng.standard_normal((1, 2)).astype(np.float32)}]))
    trials.run(())
    assert trials.run({"a", "b"}).verification.worst_snr_db == np.inf
    assert calls["original"] == 2


def test_what_was_tried_is_not_run_again(played):
    trials, calls = played({"x": np.ones((1, 2), np.float32)})
    first = trials.run({"a"})
    assert trials.run(["a"]) is first
    trials.run(())
    assert trials.measure({"a"}).noise == first.noise
    assert calls["compiled"] == [{"a"}, set()]
    again = trials.run({"a"})
    assert (trials.runs, len(calls["compiled"])) == (2, 3), "compiled once more, because the result was let go"
    assert again.compiled.verification is first.verification


def test_a_selection_that_leaves_a_backend_nothing_makes_way_for_one_that_leaves_it_some(played):
    trials, _ = played({"x": np.ones((1, 2), np.float32)})
    for raised, lowered in (({"a", "b"}, ()), ({"b", "c"}, {"a"}), ({"b"}, ()), ({"a"}, ())):
        trials.run(raised, lowered)
    emptied, kept = frozenset("ab"), (frozenset("bc"), frozenset("a"))
    assert trials.with_low_nodes(emptied, Goals(min_snr=60)) == kept, "of those that meet the goal"
    assert trials.with_low_nodes(frozenset("b"), Goals(min_snr=60)) == (frozenset("b"), frozenset()), "it has some"
    assert trials.with_low_nodes(frozenset("abc"), Goals(min_snr=60))[1] == frozenset(), "it was not tried"
