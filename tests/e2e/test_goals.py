"""Accuracy goals: what they raise, what is said of it, and what happens where they cannot be met."""

import json
import re
import shlex
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.cli.main import main
from onnx import numpy_helper

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA = str(DIGITS / "digits.onnx"), str(DIGITS / "test.npz")


@pytest.fixture
def dense(tmp_path, monkeypatch):
    """Two products with an activation between, and data: `m.onnx`, `x.npz`."""
    monkeypatch.chdir(tmp_path)
    text = """<ir_version: 10, opset_import: ["" : 22]>
    g (float[N,32] x) => (float[N,8] y) <float[32,32] w, float[32,8] v> {
      [first] a = MatMul (x, w)  [act] b = Tanh (a)  [last] y = MatMul (b, v) }"""
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    for name, shape in (("w", (32, 32)), ("v", (32, 8))):
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 4, name))
    onnx.save(model, "m.onnx")
    np.savez("x.npz", x=rng.standard_normal((16, 32)).astype(np.float32))
    return "m.onnx"


def compile_(*more, backend="cpu-bf16"):
    """Compile without a look at the clock, by which float32 may be faster for nets as small as these."""
    command = ["compile", "m.onnx", "--backend", backend, "--data", "x.npz", "-o", "out"]
    return main([*command, *more])


def raised(folder="out"):
    return dovetail.load(folder).plan.summary["accuracy"]["raised"]


@pytest.fixture(scope="module")
def accurate(tmp_path_factory):
    """The net that reads digits, compiled with a goal that it does not meet on all parts of the data, and saved.

    The goal depends on the CPU: without bfloat16 instructions results are more accurate.
    """
    folder = tmp_path_factory.mktemp("accurate")
    plain = dovetail.compile(MODEL, "cpu-bf16", data=DATA, verify=False)
    plain = dovetail.verify(MODEL, plain, DATA)
    goal = round(plain.cautious[0].snr_db + 3, 1)
    compiled = dovetail.compile(MODEL, "cpu-bf16", data=DATA, min_snr=goal)
    compiled.save(folder)
    return compiled, folder, plain, goal


def test_a_trained_net_meets_its_goal_and_its_plan_needs_no_goal(accurate):
    compiled, folder, plain, goal = accurate
    assert plain.cautious[0].snr_db < goal
    assert goal <= compiled.verification.worst_snr_db
    found = dovetail.load(folder).plan
    accuracy = found.summary["accuracy"]
    assert accuracy["goals"] == {"min_snr": goal}
    assert accuracy["met"]
    assert accuracy["raised"]
    assert {str(node.precision) for node in found.nodes if node.name in accuracy["raised"]} == {"float32"}
    assert "bfloat16" in {str(node.precision) for node in found.nodes}, "not everything is raised"
    held_back = "accuracy on 88 of 360 rows, held out from calibration and search"
    assert accuracy["measured_on"] == held_back
    assert held_back in compiled.verification.notes
    replayed = dovetail.compile(MODEL, plan=folder, data=DATA)
    assert replayed.verification.worst_snr_db >= goal


def test_what_was_raised_says_why(accurate):
    _, folder, _, goal = accurate
    name = raised(folder)[0]
    lines = "\n".join(dovetail.explain(folder, name))
    assert f"computed in float32, as --min-snr {goal:g} says" in lines
    assert f"raised for --min-snr {goal:g}: it" in lines
    assert re.search(r"% of the noise; SNR \d+\.\d dB before, SNR \d+\.\d dB with all that was raised", lines)


@pytest.mark.slow
def test_the_same_request_is_recognized(dense, capsys):
    goals = ("--min-snr", "70")
    assert compile_(*goals) == 0
    first = Path("out/model.onnx").read_bytes()
    assert main(["compile", "out/model.onnx", "--backend", "cpu-bf16", "--data", "x.npz", *goals, "-o", "again"]) == 0
    assert Path("again/model.onnx").read_bytes() == first
    assert compile_("--min-snr", "10") == 0
    assert Path("out/model.onnx").read_bytes() != first, "another goal is another request"


@pytest.mark.generated
@pytest.mark.parametrize("backend", ["cpu-bf16", "gpu-fp16"])
@pytest.mark.parametrize("goal", [("--min-snr", "70"), ("--min-cosine", "0.99999995"), ("--max-abs", "1e-3")])
def test_every_goal_raises(dense, backend, goal, capsys):
    assert compile_(backend=backend) == 0
    before = dovetail.verify("m.onnx", "out", "x.npz", **keyword(goal))
    assert compile_(*goal, backend=backend) == 0
    after = dovetail.verify("m.onnx", "out", "x.npz", **keyword(goal))
    assert after.missed == []
    assert bool(before.missed) == bool(raised())


def test_a_goal_of_two_backends(dense):
    both = ("--backend", "gpu-fp16", "--pin", "last=gpu-fp16")
    assert compile_(*both) == 0
    assert {node.backend for node in dovetail.load("out").plan.nodes} == {"cpu-bf16", "gpu-fp16"}
    before = dovetail.verify("m.onnx", "out", "x.npz").worst_snr_db
    assert compile_(*both, "--min-snr", str(before + 3)) == 0
    assert {node.backend for node in dovetail.load("out").plan.nodes} == {"cpu-bf16", "gpu-fp16"}
    assert dovetail.verify("m.onnx", "out", "x.npz", min_snr=before + 3).missed == []
    assert raised()


@pytest.mark.parametrize("solver", ["fixpoint", "min-cut"])
def test_a_goal_with_another_solver(dense, solver):
    assert compile_("--solver", solver, "--min-snr", "70") == 0
    assert dovetail.verify("m.onnx", "out", "x.npz", min_snr=70).missed == []


def keyword(goal):
    return {goal[0].strip("-").replace("-", "_"): float(goal[1])}


def test_what_meets_its_goal_as_it_is_has_nothing_raised(dense):
    assert compile_("--min-snr", "20") == 0
    assert raised() == []


def test_verify_says_which_output_misses(dense, capsys):
    assert compile_() == 0
    assert main(["verify", "m.onnx", "out", "--data", "x.npz", "--min-snr", "30", "--min-top1", "90%"]) == 0
    capsys.readouterr()
    assert main(["verify", "m.onnx", "out", "--data", "x.npz", "--min-snr", "100"]) == 1
    error = capsys.readouterr().err
    assert "error: the goal is not met: 'y' has SNR" in error
    assert "--min-snr 100 is asked for" in error
    assert "dovetail bisect m.onnx --backend cpu-bf16 --data x.npz" in error
    assert main(["verify", "m.onnx", "out", "--data", "x.npz", "--max-abs", "1e-9", "--json"]) == 1
    assert "--max-abs 1e-09" in json.loads(capsys.readouterr().out)["missed"][0]


# What cannot be met, or is no goal at all.


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--min-snr", "nan"], 2, "--min-snr nan is no goal: it is decibels, 0 or more"),
        (["--min-snr", "-3"], 2, "--min-snr -3 is no goal"),
        (["--min-cosine", "1.5"], 2, "--min-cosine 1.5 is no goal: it is a cosine, from 0 to 1"),
        (["--min-top1", "99"], 2, "--min-top1 99 is no goal: it is a share, from 0 to 1 or 0% to 100%"),
        (["--max-abs", "0"], 2, "--max-abs 0 is no goal"),
    ],
)
def test_what_is_no_goal_is_said_before_any_work(dense, options, code, message, capsys):
    assert compile_(*options) == code
    assert message in capsys.readouterr().err
    assert not Path("out").exists()
    assert main(["verify", "m.onnx", "m.onnx", "--data", "x.npz", *options]) == code


def test_a_goal_without_data(dense, capsys):
    for command in (["compile", "m.onnx", "--backend", "cpu-bf16"], ["verify", "m.onnx", "m.onnx"]):
        assert main([*command, "--min-snr", "30"]) == 2
        assert "--min-snr 30 is a goal without data to measure it on" in capsys.readouterr().err
    with pytest.raises(dovetail.UsageError, match="a goal without data"):
        dovetail.compile("m.onnx", "cpu-bf16", min_snr=30)
    with pytest.raises(dovetail.UsageError, match="verify=False forbids"):
        dovetail.compile("m.onnx", "cpu-bf16", data="x.npz", min_snr=30, verify=False)


@pytest.mark.slow
def test_a_goal_that_float32_does_not_meet(dense, capsys):
    assert compile_("--min-snr", "250") == 1
    error = capsys.readouterr().err
    assert "the goal is not met: 'y' has SNR 1" in error
    assert "although every node is computed in the types of the source model" in error
    assert dovetail.load("out").plan.summary["accuracy"]["met"] is False, "the most accurate result is there"


@pytest.mark.parametrize("lock", [["--low", "*"], ["--low", "type:MatMul"], ["--pin", "type:MatMul=cpu-bf16/bfloat16"]])
def test_a_goal_against_what_must_stay_low(dense, lock, capsys):
    assert compile_("--min-snr", "90", *lock) == 1
    error = capsys.readouterr().err
    assert "with everything raised that may be; " in error
    assert "'first'" in error
    assert shlex.join(lock) in error


def test_a_goal_and_a_plan_that_is_replayed(dense, capsys):
    assert compile_() == 0
    assert main(["compile", "m.onnx", "--plan", "out", "--data", "x.npz", "--min-snr", "90"]) == 1
    assert "the plan that is replayed" in capsys.readouterr().err


def test_a_goal_on_scores_where_there_are_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = """<ir_version: 10, opset_import: ["" : 22]>
    g (float[2,4,4] x) => (float[2,4,4] y) { y = MatMul (x, x) }"""
    onnx.save(onnx.parser.parse_model(text), "m.onnx")
    np.savez("x.npz", x=np.ones((2, 4, 4), np.float32))
    assert compile_("--min-top1", "1") == 2
    assert "no output holds rows of scores" in capsys.readouterr().err


def test_python_gets_the_result_that_misses(dense):
    with pytest.raises(dovetail.GoalError, match="the goal is not met") as caught:
        dovetail.compile("m.onnx", "cpu-bf16", data="x.npz", max_abs=1e-12)
    assert caught.value.compiled.run({"x": np.ones((1, 32), np.float32)})["y"].shape == (1, 8)


# Warnings.

POOR = """<ir_version: 10, opset_import: ["" : 22]>
g (float[4,8] x) => (float[4,8] y) <float big = {2000}> {
  [up] a = Add (x, big)  [keep] b = Relu (a)  [down] y = Sub (b, big) }"""


@pytest.fixture
def poor(tmp_path, monkeypatch):
    """A sum much larger than what is left of it: nothing of its inputs survives in a low precision."""
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(POOR), "m.onnx")
    np.savez("x.npz", x=np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32))
    return ["--pin", "up=gpu-fp16/float16", "--pin", "keep=gpu-fp16/float16", "--pin", "down=gpu-fp16/float16"]


def test_a_poor_result_is_a_warning_with_the_next_step(poor, capsys):
    assert compile_(*poor, backend="gpu-fp16") == 0
    out, error = capsys.readouterr()
    assert "warning: 'y': SNR" in error
    assert "below 20 dB, another element is the largest in" in error
    command = f"`dovetail bisect m.onnx --backend gpu-fp16 {' '.join(poor)} --data x.npz`"
    assert f"{command} shows which nodes cost it" in error
    assert out.splitlines()[-1].endswith("; 1 warning")
    assert main(["verify", "m.onnx", "out", "--data", "x.npz"]) == 0
    assert f"{command} shows" in capsys.readouterr().err
    assert compile_(*poor, "--json", backend="gpu-fp16") == 0
    document = json.loads(capsys.readouterr().out)
    assert "below 20 dB" in document["warnings"][0]
    assert document["verification"]["warnings"] == document["warnings"]


def test_a_good_result_has_no_warning(dense, capsys):
    assert compile_() == 0
    out, error = capsys.readouterr()
    assert "warning" not in out + error
    assert "random inputs" not in out


def test_random_inputs_say_that_they_prove_little(dense, capsys):
    assert main(["compile", "m.onnx", "--backend", "cpu-bf16", "--verify", "-o", "out"]) == 0
    assert capsys.readouterr().out.count("note: random inputs prove little about real ones; --data") == 1
    assert main(["verify", "m.onnx", "out"]) == 0
    assert capsys.readouterr().out.count("random inputs prove little") == 1


@pytest.mark.slow
def test_answers_that_must_not_change(dense, capsys):
    """Of many rows some have two scores that are nearly the same."""
    np.savez("x.npz", x=np.random.default_rng(1).standard_normal((4000, 32)).astype(np.float32))
    assert compile_() == 0
    assert "another element is the largest in" in capsys.readouterr().err
    changed = 1 - dovetail.verify("m.onnx", "out", "x.npz").outputs[0].top1
    assert compile_("--min-top1", str(1 - changed / 2)) == 0
    assert raised()
    assert dovetail.verify("m.onnx", "out", "x.npz", min_top1=1 - changed / 2).missed == []


def class_net():
    """A model whose only output are classes, 1 % of which bfloat16 changes."""
    values = np.random.default_rng(0)
    weights = [values.standard_normal(shape).astype(np.float32) / 4 for shape in ((16, 32), (32, 64))]
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w0"], ["a"], "first"),
        onnx.helper.make_node("Relu", ["a"], ["b"], "bend"),
        onnx.helper.make_node("MatMul", ["b", "w1"], ["c"], "second"),
        onnx.helper.make_node("ArgMax", ["c"], ["class"], "top", axis=1, keepdims=0),
    ]
    graph = onnx.helper.make_graph(
        nodes, "g", [onnx.helper.make_tensor_value_info("x", 1, ["N", 16])],
        [onnx.helper.make_tensor_value_info("class", 7, ["N"])],
        [onnx.numpy_helper.from_array(one, f"w{k}") for k, one in enumerate(weights)],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    return model, {"x": values.standard_normal((512, 16)).astype(np.float32)}


def test_classes_count_in_the_headline_and_in_goals():
    model, data = class_net()
    assert "SNR exact" not in dovetail.compile(model, "cpu-bf16", data=data).summary()
    raised = dovetail.compile(model, "cpu-bf16", data=data, min_snr=45)
    accuracy = raised.plan.summary["accuracy"]
    assert accuracy["met"] and accuracy["raised"]
    assert "all elements equal" in raised.summary()
