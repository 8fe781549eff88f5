"""Which workers of a cluster run a result: those that have the engine that its backend prefers."""

import json

import pytest
from dovetail import load_plugins
from dovetail.errors import DovetailError
from dovetail_runtime.worker_engines import chosen_workers, engines_of_worker, offers_in

NONE = {"npu": "no device", "cpu": "not installed"}
CPU = {"npu": "no device", "cpu": ""}
NPU = {"npu": "", "cpu": ""}
NEEDS = {"acme": ("npu", "cpu")}


@pytest.mark.parametrize(
    ("offered", "here", "workers", "engine", "is_here"),
    [
        ({"a": NPU, "b": CPU}, CPU, ("a",), "npu", False),  # the board computes, though others could
        ({"a": CPU, "b": CPU}, CPU, ("a", "b"), "cpu", True),
        ({"a": NPU, "b": NPU}, NPU, ("a", "b"), "npu", True),
        ({"a": NPU, "b": {}}, NONE, ("a",), "npu", False),  # a worker whose answer was not valid
    ],
)
def test_the_preferred_engine_decides(offered, here, workers, engine, is_here):
    chosen = chosen_workers(offered, here, NEEDS)
    assert (chosen.workers, chosen.engines, chosen.is_here) == (workers, {"acme": engine}, is_here)


def test_of_two_backends_a_worker_has_both():
    needs = {**NEEDS, "other": ("gpu",)}
    offered = {"a": {**NPU, "gpu": "no driver"}, "b": {**NPU, "gpu": ""}, "c": {"gpu": ""}}
    assert chosen_workers(offered, NONE, needs).workers == ("b",)
    with pytest.raises(
        DovetailError, match=r"no worker has npu \(acme\) and gpu \(other\)\n  a has cpu, npu; c has gpu"
    ):
        chosen_workers({"a": offered["a"], "c": offered["c"]}, NONE, needs)


def test_what_no_worker_has_is_one_message_with_what_they_offer():
    with pytest.raises(DovetailError) as caught:
        chosen_workers({"tcp://1": CPU, "tcp://2": CPU, "tcp://3": NONE}, NONE, {"acme": ("npu",)})
    assert str(caught.value) == (
        "no worker has an engine of acme (npu: no device)\n  2 workers have cpu; tcp://3 has no engine"
    )
    assert chosen_workers({"a": CPU}, NONE, {"acme": ("npu",)}, has_stand_ins=True).workers == ("a",)
    with pytest.raises(DovetailError, match="no worker has npu .acme.\n  a has cpu; it is on this machine: leave out"):
        chosen_workers({"a": CPU}, NPU, NEEDS)


@pytest.mark.parametrize("answer", [OSError("lost"), "{", "[1]", 3])
def test_a_worker_that_answers_something_else_has_no_engine(answer):
    assert offers_in(answer) == {}


def test_a_worker_tells_why_engines_are_not_there():
    found = offers_in(engines_of_worker(()))
    assert found["onnxruntime-cpu"] == "" and found.keys() == set(load_plugins().registry.engine)
    assert all(isinstance(why, str) and "\n" not in why for why in json.loads(engines_of_worker(())).values())
