"""Plans: saved, edited, replayed; and refused where they fit nothing."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import dovetail
import pytest
import yaml
from dovetail import api
from dovetail.errors import DovetailError
from dovetail.ir import Format
from dovetail.planning import Plan

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
    return {node.name: (node.backend, str(node.precision)) for node in plan.nodes if node.op_type != "Cast"}


def by_node(document):
    """The document with its remarks by node: between nodes a file keeps no order."""
    found = {}
    for remark in document["remarks"]:
        found.setdefault(remark.get("node", ""), []).append(remark)
    return {**document, "remarks": found}


@pytest.mark.parametrize("name", ["plan.yaml", "plan.json"])
def test_a_plan_comes_back_as_it_was_saved(model, name):
    plan = api.plan(model, ["cpu-bf16"], pins=["act=host"])
    plan.save(name)
    loaded = Plan.load(name)
    assert by_node(loaded.as_dict()) == by_node(plan.as_dict())
    loaded.save(f"again-{name}")
    assert Path(f"again-{name}").read_bytes() == Path(name).read_bytes()


def test_the_form_of_a_plan(model):
    plan = api.plan(model, ["cpu-bf16"])
    plan.save("plan.yaml")
    data = yaml.safe_load(Path("plan.yaml").read_text())
    assert data["version"] == 2
    assert data["model"] == {"path": "m.onnxtxt", "nodes": 3, "sha256": sha256(model.read_bytes()).hexdigest()}
    (backend,) = data["backends"]
    assert backend.pop("distribution").startswith("dovetail-cpu-bf16 ") and backend.pop("contract") == 1
    assert backend == {"name": "cpu-bf16", "strategy": "autocast", "options": {"policies": "autocast"}}
    (first, *_) = data["nodes"]
    assert first[:5] == ["first", "a", "MatMul", "cpu-bf16/bfloat16", 0]  # and the structural key
    assert data["joins"] == [
        ["x", "float32", "bfloat16", "cast", "first", 64],
        ["y", "bfloat16", "float32", "cast", "y", 128],
    ]
    request = {"backends": ["cpu-bf16"]}
    assert data["summary"] == {"coverage": {"cpu-bf16": 3}, "regions": 1, "joins": 2, "request": request}
    lines = Path("plan.yaml").read_text().splitlines()
    assert sum("cpu-bf16/bfloat16" in line for line in lines) == 3  # one line per node


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
    (line,) = [line for line in text.splitlines() if line.startswith('- ["act"')]
    edited = line.replace("cpu-bf16/bfloat16", "host/float32")
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


def test_an_entry_that_was_exchanged_after_a_look_at_the_plan_counts(model):
    plan = api.plan(model, ["cpu-bf16"])
    assert plan.find("b").backend == "cpu-bf16"
    (at,) = [index for index, node in enumerate(plan.nodes) if node.output == "b"]
    plan.nodes[at] = replace(plan.nodes[at], backend="host", precision=Format.of("float32"))
    assert plan.find("b").backend == "host"
    assert placements(api.compile(model, plan=plan).plan)["act"] == ("host", "float32")


NAMED_ALIKE = """<ir_version: 10, opset_import: ["": 22]>
g (float[4] x) => (float[4] y) {{
{new}  [n1] v1 = {first} (x)
  [n2] v2 = {second} (v1)
  [n3] y = Add (v1, v2)
}}"""


def test_a_node_of_the_same_name_and_another_operator_is_not_placed_by_the_plan(model):
    """`v1` is a Relu where the plan was made, and a Sigmoid where it is replayed."""
    Path("planned.onnxtxt").write_text(NAMED_ALIKE.format(new="", first="Relu", second="Tanh"))
    api.plan("planned.onnxtxt", ["cpu-bf16"], pins=["n1=host", "n2=host"]).save("plan.yaml")
    model.write_text(NAMED_ALIKE.format(new="", first="Sigmoid", second="Tanh"))
    plan = api.compile(model, plan="plan.yaml").plan
    assert {name: backend for name, (backend, _) in placements(plan).items()} == {
        "n1": "cpu-bf16", "n2": "host", "n3": "cpu-bf16"
    }  # fmt: skip
    (said,) = [remark.why for remark in plan.remarks if remark.rule == "plan-entry"]
    assert said == "the plan's entry 'n1' (Relu) fits no node of this model: 'v1' is computed by Sigmoid here"


def test_a_new_node_does_not_take_the_entry_of_one_that_is_found_by_name(model):
    """The new node stands first and has the structure that `n1` had when the plan was made."""
    Path("planned.onnxtxt").write_text(NAMED_ALIKE.format(new="", first="Relu", second="Tanh"))
    api.plan("planned.onnxtxt", ["cpu-bf16"], pins=["n1=host"]).save("plan.yaml")
    text = NAMED_ALIKE.format(new="  [n0] v0 = Relu (x)\n", first="Relu", second="Tanh").replace("(v1, v2)", "(v0, v2)")
    model.write_text(text)
    plan = api.compile(model, plan="plan.yaml").plan
    assert {name: backend for name, (backend, _) in placements(plan).items()} == {
        "n0": "cpu-bf16", "n1": "host", "n2": "cpu-bf16", "n3": "cpu-bf16"
    }  # fmt: skip
    assert not [remark for remark in plan.remarks if remark.rule == "plan-entry"]


REFUSED = [
    ("nodes:\n  - {name: n, output: n_out, backend: host}\n", "made for another model"),
    ("nodes:\n  - {name: act, output: b, backend: npu}\n", "node 'act' is on 'npu', which was not chosen"),
    ("nodes:\n  - {name: act, output: b, backend: cpu-bf16, precision: float64}\n", "cannot compute 'act' in float64"),
    ("nodes:\n  - {name: act, output: b, bakend: host}\n", "node 'act': unknown key 'bakend'"),
    ("nodes:\n  - {name: act, backend: host}\n", "node 'act': no output or no backend"),
    ("nodes: ]\n", "plan.yaml:2"),
    ("nodes: 7\n", "must be a list"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_plans_that_are_refused(model, text, says):
    Path("plan.yaml").write_text("version: 1\n" + text)
    with pytest.raises(DovetailError) as caught:
        api.compile(model, ["cpu-bf16"], plan="plan.yaml")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", "version: 3\n", "- 1\n", json.dumps({"nodes": []})])
def test_what_is_no_plan(model, text):
    Path("plan.yaml").write_text(text)
    with pytest.raises(DovetailError, match="not a plan of version 2"):
        Plan.load("plan.yaml")


def test_explain_follows_what_forced_a_node(model):
    plan = api.plan(model, ["cpu-bf16"], pins=["first=cpu-bf16/float32"])
    lines = dovetail.explain(plan, "act")
    assert lines[0] == "act (Tanh): cpu-bf16, float32, region 0"
    text = "\n".join(lines)
    assert "because of first:" in text
    assert "float32, as pinned" in text
    with pytest.raises(DovetailError, match="no node 'actt'") as caught:
        dovetail.explain(plan, "actt")
    assert "'act'" in caught.value.hint


WRONG = [
    # what stands in the plan instead of bfloat16, what is said
    ("float31", "node 'act': 'float31': there is no element type 'float31' (did you mean"),
    ("int8", "plan: node 'act': unknown precision 'int8'"),
    ("bfloat17", "node 'act': 'bfloat17': there is no element type 'bfloat17' (did you mean"),
    ("float64", "cannot compute 'act' in float64"),
]


@pytest.mark.parametrize(("precision", "says"), WRONG, ids=[precision for precision, _ in WRONG])
def test_an_edited_precision_meets_the_rules_of_pins(model, precision, says):
    plan = api.plan(model, ["cpu-bf16"])
    text = str(plan)
    (line,) = [line for line in text.splitlines() if line.startswith('- ["act"')]
    Path("plan.yaml").write_text(text.replace(line, line.replace("bfloat16", precision)))
    with pytest.raises(DovetailError) as caught:
        api.compile(model, plan="plan.yaml")
    assert says in caught.value.message
    assert "float16" in str(caught.value)


def test_a_port_that_a_node_does_not_have(model):
    plan = api.plan(model, ["cpu-bf16"])
    plan.nodes[1] = replace(plan.nodes[1], ports={"bais": Format.of("float32")})
    with pytest.raises(DovetailError, match="'act' has no port 'bais'") as caught:
        api.compile(model, plan=plan)
    assert "its ports are input, output" in caught.value.hint


def test_types_that_nobody_chooses_are_no_mistake(tmp_path, monkeypatch):
    """A node without floats is listed with the type that it has."""
    monkeypatch.chdir(tmp_path)
    Path("m.onnxtxt").write_text("""<ir_version: 10, opset_import: ["": 22]>
    g (float[N,8] x) => (int64[2] s, float[N,8] y) { [shape] s = Shape (x)  [act] y = Tanh (x) }""")
    plan = api.plan("m.onnxtxt", ["cpu-bf16"])
    assert {node.name: str(node.precision) for node in plan.nodes}["shape"] in ("float32", "int64")
    assert placements(api.compile("m.onnxtxt", plan=plan).plan) == placements(plan)


def test_entries_that_fit_no_node_are_reported(model):
    plan = api.plan(model, ["cpu-bf16"], pins=["act=host"])
    plan.nodes.append(replace(plan.nodes[0], name="gone", output="nowhere", key="0"))
    plan.nodes.append(replace(plan.nodes[1], name="other", output="y", key="1"))  # y is computed by a MatMul
    compiled = api.compile(model, plan=plan)
    said = [remark.why for remark in compiled.remarks if remark.rule == "plan-entry"]
    assert said == [
        "the plan's entry 'gone' (MatMul) fits no node of this model",
        "the plan's entry 'other' (Tanh) fits no node of this model: 'y' is computed by MatMul here",
    ]
    assert placements(compiled.plan)["second"] == ("cpu-bf16", "bfloat16")
