"""Backends that are not there: those of a plan, those of broken plugins, and two of one name."""

import json
from pathlib import Path

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
    assert plan.backends[0].distribution == "dovetail-orion 1.2"


def test_a_plan_says_what_to_install(install, model):
    orion(install)
    dovetail.plan(model, "orion-int8").save("plan.yaml")
    dovetail.compile(model, "orion-int8").save("out")
    without = load_plugins(block=["orion"])
    without.registry.absent.clear()  # as where it was never installed
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(model, plan="plan.yaml", plugins=without)
    needs = "backend 'orion-int8' is not here: it needs dovetail-orion 1.x, and the plan was made with 1.2"
    assert (caught.value.message, caught.value.hint) == (needs, "pip install 'dovetail-orion==1.*'")
    with pytest.raises(DovetailError, match=needs):
        dovetail.load("out", plugins=without)


def test_before_version_1_a_plan_needs_the_minor_version(install, model):
    orion(install, version="0.3.1")
    plan = dovetail.plan(model, "orion-int8")
    without = load_plugins(block=["orion"])
    without.registry.absent.clear()
    with pytest.raises(
        DovetailError, match=r"it needs dovetail-orion 0.3.x, .*\n  pip install 'dovetail-orion==0.3.\*'"
    ):
        dovetail.compile(model, plan=plan, plugins=without)


def versions(compiled):
    """The notes on what differs from the backends of the plan."""
    return [note for note in compiled.notes() if "the plan was made" in note]


def test_replaying_and_loading_under_another_version_leave_a_note(install, model):
    orion(install)
    dovetail.compile(model, "orion-int8").save("out")
    text = Path("out/plan.yaml").read_text()
    Path("older.yaml").write_text(text.replace("dovetail-orion 1.2", "dovetail-orion 1.0"))
    Path("newer.yaml").write_text(text.replace('"contract": 1', '"contract": 2'))
    assert versions(dovetail.compile(model, plan="out/plan.yaml")) == versions(dovetail.load("out")) == []
    again = dovetail.compile(model, plan="older.yaml")
    (remark,) = [remark for remark in again.remarks if remark.rule == "version"]
    assert (
        remark.why == "the plan was made with 'orion-int8' of dovetail-orion 1.0; here it is that of dovetail-orion 1.2"
    )
    assert remark.suggest.endswith("pip install 'dovetail-orion==1.0'") and remark.why in versions(again)
    (note,) = versions(dovetail.compile(model, plan="newer.yaml"))
    assert note == "the plan was made with version 2 of the plugin contract, here it is 1"
    plugins = load_plugins()
    for record in plugins.plugins:
        record.version = "1.3" if record.distribution == "dovetail-orion" else record.version
    assert "here it is that of dovetail-orion 1.3" in versions(dovetail.load("out", plugins=plugins))[0]


def test_a_result_records_the_origins_of_its_backends(install, model):
    orion(install)
    dovetail.compile(model, "orion-int8").save("out")
    recorded = json.loads(Path("out/result.json").read_text())["origins"]
    assert recorded == {"backends": {"orion-int8": {"distribution": "dovetail-orion 1.2", "contract": 1}}}


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
    assert chosen.backends[0].distribution == "dovetail-orion 1.2"


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
    assert dovetail.plan(model, "orion-int8", plugins=plugins).backends[0].distribution == "dovetail-orion 1.2"
