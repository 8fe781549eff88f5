"""`--unit-conv`: beside a node that is named, or wherever it brings more nodes to the BPU than it costs."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError
from dovetail_onnx.opening import open_text

TAIL = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,8,16,16] y, float[1,4,8,8] z) <float[4,4,1,1] w, float[4] s = {1,1,2,2}> {
  [one] a = Conv (x, w)
  [two] b = Conv (a, w)
  [act] z = Relu (b)
  [three] c = Conv (z, w)
  [join] d = Concat <axis = 1> (c, c)
  [pool] e = MaxPool <kernel_shape = [1,1]> (d)
  [grow] y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric"> (e, , t)
}""".replace("float[4] s = {1,1,2,2}", "float[4] t = {1.0, 1.0, 2.0, 2.0}")


def model():
    made = open_text(TAIL, "m")
    rng = np.random.default_rng(0)
    for value in made.graph.initializers.values():
        if value.const_value is None or value.name == "w":
            import onnx_ir as ir

            value.const_value = ir.tensor(rng.standard_normal((4, 4, 1, 1)).astype(np.float32), name=value.name)
    return made


def on_bpu(plan):
    return [node.name for node in plan.nodes if node.backend == "bpu-int8"]


def test_auto_brings_a_tail_of_passive_nodes_with_one_convolution_and_says_what_it_brought():
    before = dovetail.plan(model(), "bpu-int8")
    assert on_bpu(before) == ["one", "two", "act", "three"]
    plan = dovetail.plan(model(), "bpu-int8", unit_conv="auto")
    assert on_bpu(plan) == ["one", "two", "act", "three", "join", "pool", "grow", "grow_unit"]
    (said,) = (remark for remark in plan.remarks if remark.rule == "unit-conv")
    assert said.node == "grow"
    assert said.why == "a unit convolution after it brings 3 nodes to bpu-int8: 'join', 'pool', 'grow'"


def test_auto_leaves_what_does_not_pay():
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w> { [one] a = Conv (x, w) [act] y = Relu (a) }"""
    plan = dovetail.plan(open_text(text, "m"), "bpu-int8", unit_conv="auto")
    assert on_bpu(plan) == ["one"]
    assert not plan.edits


def test_a_replay_makes_the_same_edits(tmp_path):
    data = [{"x": np.random.default_rng(2).standard_normal((1, 4, 8, 8)).astype(np.float32)}]
    plan = dovetail.compile(model(), "bpu-int8", unit_conv="auto", data=data).plan
    plan.save(tmp_path / "plan.yaml")
    again = dovetail.compile(model(), "bpu-int8", plan=tmp_path / "plan.yaml").plan
    assert len(again.edits) == 1
    assert [str(edit) for edit in again.edits] == [str(edit) for edit in plan.edits]
    assert on_bpu(again) == on_bpu(plan)


def test_the_output_is_that_of_the_original():
    image = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(np.float32)
    plain = dovetail.compile(model(), "host").run({"x": image})
    edited = dovetail.compile(model(), "host", edits=("bpu-unit-conv=grow:after",)).run({"x": image})
    for name in plain:
        np.testing.assert_array_equal(plain[name], edited[name])


@pytest.mark.parametrize(
    ("text", "name"), [("grow", "grow_unit"), ("grow:after", "grow_unit"), ("one:before", "one_unit")]
)
def test_a_node_that_is_named(text, name):
    plan = dovetail.plan(model(), "bpu-int8", unit_conv=[text])
    assert name in {node.name for node in plan.nodes}


def test_on_the_command_line(tmp_path, capsys):
    made = onnx.parser.parse_model(TAIL)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w"))
    onnx.save(made, tmp_path / "m.onnx")
    command = ["plan", str(tmp_path / "m.onnx"), "--backend", "bpu-int8", "-o", str(tmp_path / "p.yaml")]
    assert main([*command, "--unit-conv", "auto"]) == 0
    assert main(["explain", str(tmp_path / "p.yaml")]) == 0
    assert "bpu-int8 8/8 nodes" in capsys.readouterr().out
    assert main([*command, "--unit-conv", "gorw"]) == 1
    assert "grow" in capsys.readouterr().err


def test_what_it_cannot_mean():
    with pytest.raises(UsageError, match="which is not asked for"):
        dovetail.plan(model(), "host", unit_conv="auto")
    with pytest.raises(UsageError, match="is no node and no list of nodes"):
        dovetail.plan(model(), "bpu-int8", unit_conv=3)
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[4,8] x) => (float[4,8] y) { [act] y = Relu (x) }"""
    with pytest.raises(DovetailError, match=r"has shape \[4,8\]; a convolution takes images"):
        dovetail.plan(open_text(text, "m"), "bpu-int8", unit_conv="act")
