"""A node that cannot be typed where it was placed takes everything along that one backend runs together with it."""

from pathlib import Path

import dovetail
import pytest
from dovetail import api
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

FILE = """
backend: narrow
device: npu
opset: 13..26
dynamic: accept
precision: {low: float16, high: float32}
policies: fp16
types: {f: [float16, float32]}
ops:
  Relu: {types: float16}
  If, Loop, Add, Tanh, Less: {types: f}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""

BRANCH = """<ir_version: 10, opset_import: ["": 22]>
g (float[4] x, bool c) => (float[4] y) {
  [before] a = Add (x, x)
  [choice] z = If (c) <
    then_branch = t () => (float[4] t0) { [inner] t0 = Relu (a) },
    else_branch = e () => (float[4] e0) { [other] e0 = Tanh (a) }
  >
  [after] y = Add (z, z)
}"""

NESTED = """<ir_version: 10, opset_import: ["": 22]>
g (float[4] x, bool c) => (float[4] y) {
  [outer] y = If (c) <
    then_branch = t () => (float[4] t0) {
      [middle] t0 = If (c) <
        then_branch = tt () => (float[4] t1) { [inner] t1 = Relu (x) },
        else_branch = te () => (float[4] t2) { [other] t2 = Tanh (x) }
      >
    },
    else_branch = e () => (float[4] e0) { [last] e0 = Add (x, x) }
  >
}"""


@pytest.fixture
def planned(with_backend, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plugins = with_backend(FILE)

    def plan(text, **choices):
        Path("m.onnxtxt").write_text(text)
        return api.plan("m.onnxtxt", "narrow", plugins=plugins, **choices)

    return plan


def placed(plan):
    return {node.name: node.backend for node in plan.nodes}


def test_a_node_in_a_body_takes_the_node_that_holds_it_along(planned):
    plan = planned(BRANCH, high="type:Relu")
    assert placed(plan) == {"before": "narrow", "choice": "host", "inner": "host", "other": "host", "after": "narrow"}


def test_the_outermost_holder_goes_with_every_node_of_its_bodies(planned):
    assert set(placed(planned(NESTED, high="inner")).values()) == {"host"}


def test_the_holder_is_told_which_node_of_its_body_sent_it_away(planned):
    plan = planned(BRANCH, high="type:Relu")
    said = [remark for remark in plan.remarks if remark.node == "choice" and remark.rule == "asked"]
    assert len(said) == 1
    assert "'inner' in its body cannot go there" in said[0].why
    assert said[0].because == ("inner",)


def test_a_holder_that_is_pinned_where_its_body_cannot_be_typed_is_an_error(planned):
    with pytest.raises(DovetailError, match="narrow refuses"):
        planned(BRANCH, high="type:Relu", pins="choice=narrow")


def test_compiling_such_a_model_ends_and_keeps_what_it_computes(with_backend):
    compiled = dovetail.compile(
        open_text(BRANCH, "branch"), "narrow", high="type:Relu", plugins=with_backend(FILE), verify=True
    )
    assert placed(compiled.plan)["choice"] == "host"
    assert not compiled.verification.broken
