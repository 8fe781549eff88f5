"""`--ladder`: more bits for as few nodes as possible until the outputs are near the original's."""

import json

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import GoalError, UsageError

from .outliers import net, pictures


def climbed(goal, march="bayes", **rest):
    return dovetail.compile(net(), f"bpu-int8:march={march},observer=minmax", data=pictures(), ladder=goal, **rest)


def bits(compiled):
    return {node.name: str(node.ports.get("X", node.precision)).partition("[")[0] for node in compiled.plan.nodes}


def test_it_stops_at_the_first_step_that_meets_the_goal():
    compiled = climbed(True)
    summary = compiled.plan.summary["ladder"]
    assert summary["met"] and summary["goal"] == 0.99
    assert [step.partition(" (")[0] for step in summary["steps"]][-1] == "int16 below 0.99"
    assert compiled.verification.outputs[0].cosine >= 0.99
    assert summary["nodes"] < len(compiled.plan.nodes)
    assert bits(compiled)["two"] == "int16"
    (said,) = [remark for remark in compiled.remarks if remark.rule == "ladder"]
    assert "step by step: int8 0." in said.why


def test_each_node_says_why_it_has_more_bits():
    said = [remark.why for remark in climbed(True).remarks if remark.rule == "int16" and remark.node == "act"]
    assert said and "as --ladder (sensitivity 0." in said[0]


def test_a_goal_that_eight_bits_meet_costs_nothing():
    compiled = climbed(0.3)
    assert compiled.plan.summary["ladder"]["nodes"] == 0
    assert set(bits(compiled).values()) == {"int8"}


@pytest.mark.slow
def test_nash_goes_on_with_float16():
    compiled = climbed(0.9999995, march="nash")
    assert any(step.startswith("float16") for step in compiled.plan.summary["ladder"]["steps"])
    assert "float16" in bits(compiled).values()


@pytest.mark.parametrize("march", ["bernoulli2", "bayes"])
def test_a_goal_that_is_out_of_reach_is_an_error_with_the_best_result(march):
    with pytest.raises(GoalError) as caught:
        climbed(0.99999999, march=march)
    assert caught.value.compiled.plan.summary["ladder"]["met"] is False
    assert f"march {march} has" in caught.value.message
    assert "--min-cosine" in caught.value.hint


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"backends": "cpu-bf16"}, "which is not among the backends"),
        ({"data": None}, "--ladder needs data"),
        ({"verify": False}, "verify=False forbids it"),
        ({"min_snr": 30}, "--ladder and --min-snr are two goals"),
        ({"ladder": 1.5}, "it is a cosine similarity"),
        ({"ladder": "high"}, "it is a cosine similarity"),
    ],
)
def test_what_makes_no_sense_is_an_error(request_, message):
    request = {"backends": "bpu-int8:march=bayes", "data": pictures(), "ladder": True, **request_}
    with pytest.raises(UsageError, match=message):
        dovetail.compile(net(), **request)


@pytest.mark.slow
def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    net().save("m.onnx")
    np.savez("x.npz", **pictures())
    arguments = [
        "compile",
        "m.onnx",
        "--backend",
        "bpu-int8:march=bayes,observer=minmax",
        "--data",
        "x.npz",
        "-o",
        "out",
    ]
    assert main([*arguments, "--ladder", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["summary"]["ladder"]["met"]
    assert main([*arguments, "--ladder"]) == 0  # recognized
    assert main([*arguments, "--ladder", "0.99999999"]) == 1
    assert "is not met" in capsys.readouterr().err
    assert dovetail.load("out").plan.summary["ladder"]["met"] is False
    assert main([*arguments, "--ladder", "0.99999999"]) == 1  # recognized, and still an error
    assert main([*arguments, "--ladder", "much"]) == 2
