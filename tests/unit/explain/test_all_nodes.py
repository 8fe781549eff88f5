"""`explain --all`: every node that is not on the backend that comes first, by cause, with what was tried."""

import json
from pathlib import Path

import dovetail
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import UsageError
from dovetail_commands.explain.all_nodes import all_elsewhere
from dovetail_commands.explain.command import elsewhere

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y, float[1,4,8,8] z) {
  <float[4,4,1,1] w = {W}>
  [conv] a = Conv (x, w)
  [soft_1] b = Softmax <axis = 1> (a)
  [sign_1] c = Sign (b)
  [soft_2] d = Softmax <axis = 1> (c)
  [sign_2] e = Sign (d)
  [conv_2] f = Conv (e, w)
  [tail] y = Relu (f)
  [pool] z = MaxPool <kernel_shape = [1,1]> (x)
}"""
MODEL = MODEL.replace("  <float[4,4,1,1] w = {W}>\n", "").replace(
    "z) {", f"z) <float[4,4,1,1] w = {{{','.join('1' for _ in range(16))}}}> {{"
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def test_nodes_are_grouped_by_cause_each_with_the_remedy_that_was_tried(file):
    plan = dovetail.plan(file, "bpu-int8:march=bayes")
    lines = dovetail.explain(plan, all=True)
    assert lines[0] == "bpu-int8 has 2 nodes; 6 elsewhere, for 4 reasons"
    said = "\n".join(lines)
    assert "manual: 2 nodes: Softmax is quantized only where somebody asks for it" in said
    assert "  soft_1 (Softmax): --pin soft_1=bpu-int8\n" in said
    assert "not-supported: 2 nodes: bpu-int8 does not list Sign [bpu_int8.yaml:" in said
    assert "  sign_2 (Sign): none: bpu-int8 does not list Sign" in said
    assert "  tail (Relu): --pin 'tail=bpu-int8'" in said
    assert "passive: 1 node: it is passive, and it reads 'x', an input of the model" in said
    # Alone in a region without a product, a pin does not help.
    assert "  soft_2 (Softmax): --pin soft_2=bpu-int8 --edit bpu-unit-conv=soft_2:before" in said
    assert "  pool (MaxPool): --pin 'pool=bpu-int8'" in said


def test_the_same_as_data(file):
    found = elsewhere(dovetail.plan(file, "bpu-int8:march=bayes"))
    assert found.backend == "bpu-int8" and found.here == 2 and not found.untried
    nodes = {node.name: node for group in found.groups for node in group.nodes}
    assert nodes["soft_1"].remedy == "--pin soft_1=bpu-int8" and not nodes["soft_1"].none
    assert nodes["sign_1"].none and not nodes["sign_1"].remedy


def test_a_large_model_tries_one_node_of_each_group_and_says_what_is_left(file):
    plan = dovetail.plan(file, "bpu-int8:march=bayes")
    found = all_elsewhere(plan, plan, planned=8 * 5)
    tried = [[node.tried for node in group.nodes] for group in found.groups]
    assert all(group[0] for group in tried[:2])
    assert not all(all(group) for group in tried)
    assert "each trial plans all 8 nodes" in found.untried
    assert any("not tried: " in line for line in found.lines())
    assert "each trial plans all of them" in all_elsewhere(plan, plan, planned=8).lines()[-1]


def test_without_the_model_the_causes_are_said_all_the_same(file):
    plan = dovetail.plan(file, "bpu-int8:march=bayes")
    file.unlink()
    lines = dovetail.explain(plan, all=True)
    assert any(line.startswith("manual: 2 nodes") for line in lines)
    assert lines[-1] == "remedies were not tried, because model.onnx was not found: --model FILE"


def test_where_nothing_is_elsewhere_that_is_said(file):
    assert dovetail.explain(dovetail.plan(file, "host"), all=True) == ["host has 8 nodes; 0 elsewhere"]


def test_a_choice_of_the_user_is_a_cause(file):
    plan = dovetail.plan(file, "bpu-int8:march=bayes", pins=("conv=host",))
    (group,) = (group for group in elsewhere(plan).groups if group.rule == "pinned")
    assert [node.name for node in group.nodes] == ["conv"]
    assert group.why == "on host, as pin 'conv=host' says"
    assert group.nodes[0].remedy == "--pin 'conv=bpu-int8'"


def test_a_selector_besides_is_an_error(file):
    with pytest.raises(UsageError, match="a selector is given besides all nodes"):
        dovetail.explain(dovetail.plan(file, "host"), "conv", all=True)


def test_the_command(file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", str(file), "--backend", "bpu-int8:march=bayes", "-o", "p.yaml"]) == 0
    capsys.readouterr()
    assert main(["explain", "p.yaml", "--all"]) == 0
    assert capsys.readouterr().out.startswith("bpu-int8 has 2 nodes; 6 elsewhere, for 4 reasons\n")
    assert main(["explain", "p.yaml", "--all", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["backend"], answer["nodes"], len(answer["groups"])) == ("bpu-int8", 2, 4)
    assert answer["groups"][0]["count"] == 2
    assert main(["explain", "p.yaml", "conv", "--all"]) == 2
    assert Path("p.yaml").is_file()
