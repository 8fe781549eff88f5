"""What might bring a node to a backend is tried on the plan before `explain` names it."""

import shutil

import dovetail
import onnx
import pytest
from dovetail.errors import DovetailError

FILE = """
backend: npu
device: npu
opset: 13..26
dynamic: accept
precision: {low: float16, high: float32}
policies: fp16
options: {generation: ["1", "2"]}
types: {f: [float16, float32]}
ops:
  Relu, Add: {types: f}
  Sigmoid: {types: f, limits: {X.rank: ..2}}
variants:
  - when: {generation: "2"}
    ops: {Sigmoid: {types: f, limits: {X.rank: ..4}}}
place: {strategy: STRATEGY}
emit: {engines: [onnxruntime-cpu]}
"""

STRATEGIES = """
from dovetail.plugin import Claims, Remedy
from dovetail_placement.strategies.autocast import Autocast

class Choosy(Autocast):
    def claim(self, view, backend):
        return Claims([claim for claim in super().claim(view, backend).claims if claim.node.op_type != "Add"])

    def remedies(self, view, node):
        yield Remedy("ask nicely", pins=("name:nothing=npu",))

class Failing(Autocast):
    def remedies(self, view, node):
        raise SystemExit(3)
"""

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[2,3,4] x) => (float[2,3,4] y) {
  [relu] a = Relu (x)
  [sigmoid] b = Sigmoid (a)
  [det] c = Einsum <equation = "ijk->ijk"> (b)
  [add] y = Add (c, c)
}"""


@pytest.fixture
def plugins(with_backend, tmp_path):
    def make(strategy="autocast"):
        plugins = with_backend(FILE.replace("STRATEGY", strategy.lower()))
        if strategy != "autocast":
            (tmp_path / "choosy_strategies.py").write_text(STRATEGIES)
            with plugins.registry.on_behalf_of("dovetail-choosy"):
                plugins.registry.strategy(strategy.lower(), f"choosy_strategies:{strategy}")
        return plugins

    return make


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def tried(result, node, plugins, **options):
    return [line for line in dovetail.explain(result, node, plugins=plugins, **options) if "tried" in line]


def test_another_value_of_an_option_helps(plugins, file):
    installed = plugins()
    plan = dovetail.plan(file, "npu", plugins=installed)
    assert tried(plan, "sigmoid", installed) == [
        "tried in vain for npu: --pin 'sigmoid=npu' (pin 'name:sigmoid=npu': npu refuses 'sigmoid': X.rank = 3; "
        "allowed: ..2)",
        "tried: --backend npu:generation=2 brings it to npu, which has 3 nodes then",
    ]


def test_a_pin_helps_where_the_strategy_left_a_node_that_the_backend_takes(plugins, file):
    """What the strategy itself suggests comes first."""
    installed = plugins("Choosy")
    plan = dovetail.plan(file, "npu", plugins=installed)
    in_vain, helps = tried(plan, "add", installed)
    assert in_vain.startswith("tried in vain for npu: ask nicely (no node matches 'name:nothing'")
    assert helps == "tried: --pin 'add=npu' brings it to npu, which has 2 nodes then"


def test_where_nothing_helps_that_is_said(plugins, file):
    installed = plugins()
    plan = dovetail.plan(file, "npu", plugins=installed)
    lines = tried(plan, "det", installed)
    assert len(lines) == 2
    assert all(line.startswith("tried in vain for npu: ") for line in lines)


def test_a_node_where_it_is_wanted_needs_no_remedy(plugins, file):
    installed = plugins()
    assert tried(dovetail.plan(file, "npu", plugins=installed), "relu", installed) == []


def test_a_folder_finds_its_model_by_name_and_digest(plugins, file, tmp_path, monkeypatch):
    installed = plugins()
    out = tmp_path / "folder" / "out"
    dovetail.compile(file, "npu", plugins=installed).save(out)
    monkeypatch.chdir(tmp_path)
    assert len(tried(out, "sigmoid", installed)) == 2
    shutil.move(file, tmp_path / "elsewhere.onnx")
    assert tried(out, "sigmoid", installed) == [
        "remedies were not tried, because model.onnx was not found: --model FILE"
    ]
    assert len(tried(out, "sigmoid", installed, model=tmp_path / "elsewhere.onnx")) == 2
    onnx.save(onnx.parser.parse_model(MODEL.replace("Relu", "Tanh")), tmp_path / "other.onnx")
    with pytest.raises(DovetailError, match="other.onnx is not the model that was compiled"):
        dovetail.explain(out, "sigmoid", model=tmp_path / "other.onnx", plugins=installed)


def test_without_its_backend_a_plan_is_still_explained(plugins, file):
    plan = dovetail.plan(file, "npu", plugins=plugins())
    lines = dovetail.explain(plan, "sigmoid")
    assert lines[-1] == "remedies were not tried, because backend 'npu' is not installed"
    assert any("X.rank = 3; allowed: ..2" in line for line in lines)


def test_a_strategy_that_fails_is_named(plugins, file):
    installed = plugins("Failing")
    plan = dovetail.plan(file, "npu", plugins=installed)
    with pytest.raises(DovetailError, match="strategy .failing. of dovetail-choosy, for npu, asked for"):
        dovetail.explain(plan, "sigmoid", plugins=installed)
