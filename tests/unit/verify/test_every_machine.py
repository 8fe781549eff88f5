"""What `compile` decides follows from model, request, data and versions, and not from the engines of this machine."""

from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.errors import GoalError
from dovetail_verify import batch_differences, parts
from onnx import helper, numpy_helper

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def chain():
    """Products with columns of very different sizes, which integers and 16-bit floats lose differently."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for at in range(4):
        weight = rng.standard_normal((16, 16)) * 10.0 ** rng.uniform(-1, 1, 16)
        weights.append(numpy_helper.from_array((weight / 8).astype(np.float32), f"w{at}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{at}"], [f"h{at}"], f"product{at}"))
        nodes.append(helper.make_node("Softmax" if at % 2 else "Tanh", [f"h{at}"], [f"t{at}"], f"curve{at}"))
        value = f"t{at}"
    ends = [helper.make_tensor_value_info(name, 1, ["N", 16]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


DATA = [{"x": np.random.default_rng(seed).standard_normal((4, 16)).astype(np.float32)} for seed in range(24)]


def decided(compiled):
    """Placements and formats of a plan, by node."""
    return {node.name: (node.backend, str(node.precision)) for node in compiled.plan.nodes}


@pytest.fixture
def poor_engines(monkeypatch):
    """Engines that are one percent off, as those of another CPU might be."""
    right = parts.runner

    def poor(compiled, executor=""):
        run = right(compiled, executor)
        return lambda feeds: {name: array * np.float32(1.01) for name, array in run(feeds).items()}

    monkeypatch.setattr(parts, "runner", poor)
    return monkeypatch


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("backend", ["cpu-int8", "cpu-bf16", "gpu-fp16"])
def test_the_nodes_of_a_goal_do_not_depend_on_the_engines(backend, poor_engines):
    """Where the engines miss what the arithmetic of the plan meets, the plan is the same, and the error says both."""
    with pytest.raises(GoalError) as caught:
        dovetail.compile(chain(), backend, data=DATA, min_snr=48)
    assert "on the engines here, and the arithmetic of the plan has SNR" in caught.value.message
    assert "dovetail tune" in caught.value.hint
    poor_engines.undo()
    assert decided(caught.value.compiled) == decided(dovetail.compile(chain(), backend, data=DATA, min_snr=48))


def test_a_goal_for_another_machine_is_judged_by_the_arithmetic_of_its_plan():
    here = dovetail.compile(chain(), "gpu-fp16", data=DATA, min_snr=75)
    there = dovetail.compile(chain(), "gpu-fp16", data=DATA, min_snr=75, target_only=True)
    assert decided(there) == decided(here)
    assert there.plan.summary["accuracy"]["met"] is True


def test_a_request_for_integers_gives_integers():
    """However small the model is, and however fast floats are here; `tune` is where the clock decides."""
    data = {"image": np.load(DIGITS / "test.npz")["image"]}
    compiled = dovetail.compile(DIGITS / "digits.onnx", "cpu-int8", data=data, min_snr=30)
    assert {node.backend for node in compiled.plan.nodes} == {"cpu-int8"}
    assert any("int8" in precision for _, precision in decided(compiled).values())


def test_a_miss_says_what_each_backend_reaches_alone_and_which_command_meets_the_goal():
    with pytest.raises(GoalError) as caught:
        dovetail.compile(chain(), ["gpu-fp16", "cpu-bf16"], data=DATA, min_snr=110, low="product0")
    hint = caught.value.hint
    assert "gpu-fp16 alone is exact" in hint
    assert "meets the goal" in hint and "dovetail compile" in hint


def test_a_slow_machine_compares_trials_on_all_of_the_data(monkeypatch):
    """Only what is printed about the result at the end is of fewer batches where an engine takes long."""
    right = decided(dovetail.compile(chain(), "cpu-int8", data=DATA, min_snr=45))
    monkeypatch.setattr(batch_differences.Pace, "is_spent", True)
    compiled = dovetail.compile(chain(), "cpu-int8", data=DATA, min_snr=45)
    assert decided(compiled) == right
    assert any("verified on the first 1 batch only" in note for note in compiled.verification.notes)
