"""Backends that are not there: those of a plan, those of broken plugins, and two of one name."""

import dovetail
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import PluginWarning, load_plugins

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[1,4] x) => (float[1,4] y) { [first] a = Sigmoid (x)  [second] y = Sigmoid (a) }"""
FILE = """backend: NAME
device: npu
opset: 13..26
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {Sigmoid: {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    return "m.onnx"


def orion(install, name="orion", version="1.2", backend="orion-int8", init=""):
    files = {f"acme_{name}/__init__.py": init, f"acme_{name}/npu.backend.yaml": FILE.replace("NAME", backend)}
    install(f"dovetail-{name}", {name: f"acme_{name}"}, files, version)


def test_a_plan_records_the_distribution_of_its_backends(install, model):
    orion(install)
    plan = dovetail.plan(model, "orion-int8")
    assert plan.backends[0]["distribution"] == "dovetail-orion 1.2"


def test_a_plan_says_what_to_install(install, model):
    orion(install)
    dovetail.plan(model, "orion-int8").save("plan.yaml")
    dovetail.compile(model, "orion-int8").save("out")
    without = load_plugins(block=["orion"])
    without.registry.absent.clear()  # as where it was never installed
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(model, plan="plan.yaml", plugins=without)
    assert caught.value.message == "backend 'orion-int8' is not here: the plan was made with that of dovetail-orion 1.2"
    assert caught.value.hint == "pip install 'dovetail-orion==1.2'"
    with pytest.raises(DovetailError, match="the plan was made with that of dovetail-orion 1.2"):
        dovetail.load("out", plugins=without)


def test_a_broken_plugin_is_named_with_its_version_and_its_fault(install, model):
    orion(install, init="raise ImportError('no driver')")
    orion(install, "other", backend="orion-fp16")
    with pytest.warns(PluginWarning):
        plugins = load_plugins()
    with pytest.raises(DovetailError) as caught:
        dovetail.plan(model, "orion-int8", plugins=plugins)
    assert "plugin orion (dovetail-orion 1.2) is broken: " in caught.value.hint
    assert "no driver" in caught.value.hint


def test_a_plan_of_a_plugin_that_is_broken_now(install, model):
    orion(install)
    plan = dovetail.plan(model, "orion-int8")
    plugins = load_plugins(block=["orion"])
    with pytest.raises(DovetailError, match=r"plugin orion \(dovetail-orion 1.2\) is disabled: left out by request"):
        dovetail.compile(model, plan=plan, plugins=plugins)


def test_of_two_backends_of_one_name_neither_is_taken(install, model):
    orion(install)
    orion(install, "vela", version="3.0")
    with pytest.warns(PluginWarning, match="'orion-int8' is registered by dovetail-orion .* and by dovetail-vela"):
        plugins = load_plugins()
    assert "orion-int8" not in plugins.registry.backend
    with pytest.raises(DovetailError) as caught:
        dovetail.plan(model, "orion-int8", plugins=plugins)
    assert "so none of them is taken" in caught.value.message
    assert "--no-plugin dovetail-orion or --no-plugin dovetail-vela" in caught.value.hint
    chosen = dovetail.plan(model, "orion-int8", plugins=load_plugins(block=["dovetail-vela"]))
    assert chosen.backends[0]["distribution"] == "dovetail-orion 1.2"


def test_a_rival_that_turns_out_broken_gives_the_name_back(install, model):
    orion(install)
    files = {
        "acme_vela/__init__.py": "",
        "acme_vela/a.backend.yaml": FILE.replace("NAME", "orion-int8"),
        "acme_vela/b.backend.yaml": "ops: {}\n",
    }
    install("dovetail-vela", {"vela": "acme_vela"}, files)
    with pytest.warns(PluginWarning, match="no line says 'backend: NAME'"):
        plugins = load_plugins()
    assert dovetail.plan(model, "orion-int8", plugins=plugins).backends[0]["distribution"] == "dovetail-orion 1.2"
