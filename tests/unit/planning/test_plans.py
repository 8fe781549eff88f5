"""Plans: saved, edited, replayed; and refused where they fit nothing."""

import json
from pathlib import Path

import pytest
import yaml
from dovetail import api
from dovetail.errors import DovetailError
from dovetail.planning.plan import Plan

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,8] x) => (float[4,8] y) <float[8,8] w, float[8,8] v> {
  [first] a = MatMul (x, w)
  [act] b = Tanh (a)
  [second] y = MatMul (b, v)
}"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("m.onnxtxt")
    path.write_text(TEXT)
    return path


def placements(plan):
    return {node.name: (node.backend, node.precision) for node in plan.nodes if node.op_type != "Cast"}


@pytest.mark.parametrize("name", ["plan.yaml", "plan.json"])
def test_a_plan_comes_back_as_it_was_saved(model, name):
    plan = api.plan(model, ["cpu-bf16"], pins=["act=host"])
    plan.save(name)
    loaded = Plan.load(name)
    assert loaded.as_dict() == plan.as_dict()
    loaded.save(f"again-{name}")
    assert Path(f"again-{name}").read_bytes() == Path(name).read_bytes()


def test_the_form_of_a_plan(model):
    plan = api.plan(model, ["cpu-bf16"])
    plan.save("plan.yaml")
    data = yaml.safe_load(Path("plan.yaml").read_text())
    assert data["version"] == 1
    assert data["model"] == {"path": "m.onnxtxt", "nodes": 3}
    assert data["backends"] == [{"name": "cpu-bf16", "strategy": "autocast", "options": {"policies": "autocast"}}]
    (first, *_) = data["nodes"]
    assert first.pop("key")
    assert first == {
        "name": "first",
        "output": "a",
        "op_type": "MatMul",
        "backend": "cpu-bf16",
        "precision": "bfloat16",
        "region": 0,
    }
    assert data["joins"] == [
        {"value": "x", "from": "float32", "to": "bfloat16", "kind": "cast", "at": "first", "bytes": 64},
        {"value": "y", "from": "bfloat16", "to": "float32", "kind": "cast", "at": "y", "bytes": 128},
    ]
    assert data["summary"] == {"coverage": {"cpu-bf16": 3}, "regions": 1, "joins": 2}
    lines = Path("plan.yaml").read_text().splitlines()
    assert sum(line.startswith("  - {") and '"op_type"' in line for line in lines) == 3  # one line per node


def test_planning_changes_nothing(model):
    opened = api.open(model)
    before = str(opened)
    api.plan(opened, ["cpu-bf16"])
    assert str(opened) == before


def test_a_replay_decides_as_the_plan_says(model):
    plan = api.plan(model, ["cpu-bf16"])
    assert placements(plan)["act"] == ("cpu-bf16", "bfloat16")
    plan.save("plan.yaml")
    text = Path("plan.yaml").read_text()
    (line,) = [line for line in text.splitlines() if '"act"' in line and '"op_type"' in line]
    edited = line.replace('"backend": "cpu-bf16", "precision": "bfloat16"', '"backend": "host", "precision": "float32"')
    assert edited != line
    Path("plan.yaml").write_text(text.replace(line, edited))
    compiled = api.compile(model, plan="plan.yaml")
    assert placements(compiled.plan) == {
        "first": ("cpu-bf16", "bfloat16"),
        "act": ("host", "float32"),
        "second": ("cpu-bf16", "bfloat16"),
    }
    assert compiled.plan.summary["regions"] == 3
    compiled.save("out")
    assert placements(api.load("out").plan) == placements(compiled.plan)


def test_a_replay_of_an_unchanged_plan_gives_the_same_model(model):
    api.compile(model, ["cpu-bf16"], pins=["act=cpu-bf16/float32"]).save("decided")
    api.compile(model, plan="decided/plan.yaml").save("replayed")
    decided, replayed = (str(api.open(f"{name}/model.onnx")) for name in ("decided", "replayed"))
    assert replayed == decided


def test_a_plan_fits_another_export_of_the_model(model):
    """Other names for everything: nodes are found by their structure."""
    api.plan(model, ["cpu-bf16"], pins=["act=host"]).save("plan.yaml")
    other = Path("renamed.onnxtxt")
    text = TEXT
    names = {"[first] a": "[m0] h0", "[act] b": "[m1] h1", "(a)": "(h0)", "(b, v)": "(h1, v)", "y": "out"}
    for old, new in names.items():
        text = text.replace(old, new)
    other.write_text(text)
    compiled = api.compile(other, plan="plan.yaml")
    assert placements(compiled.plan)["m1"][0] == "host"


REFUSED = [
    ("nodes:\n  - {name: n, output: n_out, backend: host}\n", "made for another model"),
    ("nodes:\n  - {name: act, output: b, backend: npu}\n", "node 'act' is on 'npu', which was not chosen"),
    ("nodes:\n  - {name: act, output: b, backend: cpu-bf16, precision: float64}\n", "cannot compute 'act' in float64"),
    ("nodes:\n  - {name: act, output: b, bakend: host}\n", "node 'act': unknown key 'bakend'"),
    ("nodes:\n  - {name: act, backend: host}\n", "node 'act': no output or no backend"),
    ("nodes: ]\n", "plan.yaml:2"),
    ("nodes: 7\n", "not as plans have it"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_plans_that_are_refused(model, text, says):
    Path("plan.yaml").write_text("version: 1\n" + text)
    with pytest.raises(DovetailError) as caught:
        api.compile(model, ["cpu-bf16"], plan="plan.yaml")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", "version: 2\n", "- 1\n", json.dumps({"nodes": []})])
def test_what_is_no_plan(model, text):
    Path("plan.yaml").write_text(text)
    with pytest.raises(DovetailError, match="no plan of version 1"):
        Plan.load("plan.yaml")


def test_explain_follows_what_forced_a_node(model):
    plan = api.plan(model, ["cpu-bf16"], pins=["first=cpu-bf16/float32"])
    lines = api.explain(plan, "act")
    assert lines[0] == "act (Tanh): cpu-bf16, float32, region 0"
    text = "\n".join(lines)
    assert "because of first:" in text
    assert "float32, as pinned" in text
    with pytest.raises(DovetailError, match="no node 'actt'") as caught:
        api.explain(plan, "actt")
    assert "'act'" in caught.value.hint
