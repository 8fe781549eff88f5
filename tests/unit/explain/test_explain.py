"""`explain`: of one node, of many, of nodes that only the source model has, and of the whole model."""

from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from onnx import numpy_helper

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[1,3,8,8] x, bool c) => (float[1,4,8,8] y, float[1,4,8,8] z) {
  [conv_1] a = Conv <pads = [1, 1, 1, 1]> (x, w)
  [bn_1] b = BatchNormalization (a, one, zero, zero, one)
  [same] i = Identity (b)
  [relu_1] r = Relu (i)
  [shape_of] s = Shape (w)
  [forgotten] f = Neg (r)
  [soft] y = Softmax (r)
  [choice] z = If (c) <
    then_branch = t () => (float[1,4,8,8] p) { [inside] p = Tanh (r) },
    else_branch = e () => (float[1,4,8,8] q) { q = Abs (r) }
  >
}"""


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    proto = onnx.parser.parse_model(TEXT)
    arrays = {"w": np.ones((4, 3, 3, 3)), "one": np.ones(4), "zero": np.zeros(4)}
    proto.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items())
    onnx.save(proto, folder / "m.onnx")
    compiled = dovetail.compile(folder / "m.onnx", ["cpu-bf16"], high=["soft"], try_engines=False)
    compiled.save(folder / "out")
    return compiled, folder / "out"


def explained(result, selector=None):
    """The same from memory, from the folder and from the plan, which has no edges to draw."""
    compiled, folder = result
    lines = dovetail.explain(compiled, selector)
    assert sorted(dovetail.explain(folder, selector)) == sorted(lines)
    plain = sorted(dovetail.explain(compiled.plan, selector))
    assert sorted(dovetail.explain(folder / "plan.yaml", selector)) == plain
    assert set(plain) <= set(lines)
    return lines


def test_the_whole_model(result):
    lines = explained(result)
    assert lines[0].startswith("cpu-bf16 6/6 nodes in 1 region (")
    assert any(line.startswith("passed assign-types/policy-lower: ") for line in lines)
    assert any("computed in bfloat16 [cpu_bf16.yaml:" in line and "conv_1" in line for line in lines)
    (start,) = [index for index, line in enumerate(lines) if line.endswith("of the source model are gone:")]
    assert sorted(line.strip() for line in lines[start + 1 : start + 5]) == [
        "1 BatchNormalization folded into other nodes",
        "1 Identity removed: its readers read its input instead",
        "1 Neg removed: nothing reads its result",
        "1 Shape removed: nothing reads its result",
    ]


@pytest.mark.parametrize("selector", ["soft", "y", "name:soft", "type:Softmax", "sof?"])
def test_one_node(result, selector):
    lines = explained(result, selector)
    assert lines[0] == "soft (Softmax): cpu-bf16, float32, region 0"
    assert any(
        line.startswith("  passed assign-types/policy-high: computed in float32, as --high soft") for line in lines
    )


@pytest.mark.parametrize("selector", ["inside", "choice/then_branch/inside", "choice/then_branch/p"])
def test_a_node_in_a_body(result, selector):
    assert explained(result, selector)[0].startswith("inside (Tanh): cpu-bf16")


@pytest.mark.parametrize("selector", ["region:0", "*"])
def test_many_nodes(result, selector):
    lines = explained(result, selector)
    assert any(line.startswith("cpu-bf16 6/6 nodes in 1 region (bfloat16 ") for line in lines)


@pytest.mark.parametrize("selector", ["bn_1", "type:BatchNormalization", "bn*"])
def test_a_node_that_was_folded(result, selector):
    assert explained(result, selector)[0] == "bn_1 (BatchNormalization) of the source model: folded into conv_1"


@pytest.mark.parametrize(
    ("name", "fate"),
    [("same", "its readers read its input instead"), ("forgotten", "nothing reads its result")],
)
def test_a_node_that_was_removed(result, name, fate):
    (line,) = explained(result, name)
    assert line.endswith(f"of the source model: removed: {fate}")


def test_many_nodes_that_were_folded():
    from dovetail.planning import Plan, SourceNode

    plan = Plan(sources=[SourceNode(f"bn_{i}", "BatchNormalization", f"folded into conv_{i}") for i in range(12)])
    assert dovetail.explain(plan, "type:BatchNormalization") == [
        "12 BatchNormalization of the source model folded into another node "
        "(bn_0 into conv_0, bn_1 into conv_1, bn_2 into conv_2, ...)"
    ]


@pytest.mark.parametrize(
    ("selector", "hint"),
    [("type:Softmx", "'Softmax'"), ("region:7", "plan.yaml"), ("relu_2", "'relu_1'"), ("nothing*", "plan.yaml")],
)
def test_what_matches_nothing(result, selector, hint):
    with pytest.raises(DovetailError) as caught:
        dovetail.explain(result[1], selector)
    assert f"'{selector}'" in caught.value.message
    assert hint in caught.value.hint


def test_the_command(result, capsys):
    assert main(["explain", str(result[1])]) == 0
    assert capsys.readouterr().out.startswith("cpu-bf16 6/6 nodes")
    assert main(["explain", str(result[1]), "type:BatchNormalization"]) == 0
    assert "folded into conv_1" in capsys.readouterr().out
    assert main(["explain", str(result[1]), "type:Convv", "--json"]) == 1


def test_functions_are_said_to_be_inlined(tmp_path):
    text = """<ir_version: 10, opset_import: ["": 22, "local": 1]>
    g (float[2] x) => (float[2] y) { [call] y = local.twice (x) }
    <domain: "local", opset_import: ["": 22]> twice (a) => (b) { b = Add (a, a) }"""
    Path(tmp_path, "m.onnxtxt").write_text(text)
    plan = dovetail.plan(tmp_path / "m.onnxtxt", ["cpu-bf16"])
    assert dovetail.explain(plan, "type:local::twice")[0].startswith("call (local::twice) of the source model: ")


@pytest.mark.parametrize(
    ("trials", "lines"),
    [
        ([], []),
        ("of another version", []),
        (
            [{"policy": "goals", "why": f"try {number}", "figure": f"SNR {number} dB"} for number in range(13)],
            [
                "13 trials of goals:",
                *(f"  SNR {number} dB: try {number}" for number in range(6)),
                "  ... and 1 other, in the plan",
                *(f"  SNR {number} dB: try {number}" for number in range(7, 13)),
            ],
        ),
    ],
)
def test_what_a_search_tried(result, trials, lines):
    plan = dovetail.load_plan(result[1])
    plan.summary["trials"] = trials
    found = dovetail.explain(plan)
    assert [line for line in found if line in lines] == lines
    assert any("trials of" in line for line in found) == bool(lines)
