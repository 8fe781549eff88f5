"""Execution providers as engines: nothing is left to the CPU without a word, here or in another environment."""

import os
import signal
import sys
import threading

import dovetail
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from dovetail.plugin import EngineError, RegionModel
from dovetail_onnxruntime_ep.context import compiled_context
from dovetail_onnxruntime_ep.engines import Cann, ProviderEngine, Qnn
from dovetail_onnxruntime_ep.providers import Provider

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[2,4] x) => (float[2,4] y) { [first] a = Relu(x)  [second] b = Sigmoid(a)  [third] y = Add(b, x) }"""


class Cpu(ProviderEngine):
    """A provider that takes everything."""

    name = "onnxruntime-ep-test-cpu"
    provider = Provider("CPUExecutionProvider", "TEST_CPU", "", "onnxruntime")


class Azure(ProviderEngine):
    """A provider of ONNX Runtime's own package that takes no node of the model."""

    name = "onnxruntime-ep-test-azure"
    provider = Provider("AzureExecutionProvider", "TEST_AZURE", "", "onnxruntime")


class Lacking(ProviderEngine):
    """A plugin library that nobody has."""

    name = "onnxruntime-ep-test-lacking"
    provider = Provider("LackingExecutionProvider", "TEST_LACKING", "onnxruntime_ep_lacking", "onnxruntime-ep-lacking")


@pytest.fixture
def region():
    return RegionModel(dovetail.open(onnx.parser.parse_model(MODEL)))


@pytest.fixture(params=["this-process", "another-environment"])
def where(request, monkeypatch):
    """The same test in both: the other environment is this one, in a process of its own."""
    if request.param == "another-environment":
        for engine in (Cpu, Azure, Lacking, Cann):
            monkeypatch.setenv(engine.provider.variable, sys.prefix)


def test_a_region_runs_on_its_provider(region, where):
    assert Cpu().available().ok
    session = Cpu().load(region, {"threads": 1})
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    found = session.run({"x": x})["y"]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-np.maximum(x, 0))) + x, rtol=1e-5)
    assert session.facts == {"provider": "CPUExecutionProvider", "nodes": 3}
    session.close()


def test_what_a_provider_leaves_to_the_cpu_is_refused_by_name(region, where):
    with pytest.raises(EngineError) as caught:
        Azure().load(region, {})
    assert "AzureExecutionProvider leaves 'first' (Relu), 'second' (Sigmoid), 'third' (Add) to the CPU" in str(
        caught.value
    )
    assert set(caught.value.nodes) == {"first", "second", "third"}


def test_nodes_without_names_are_not_left_to_the_cpu_either(where):
    """ONNX Runtime says by name where a node is, so those without one get one."""
    text = MODEL.replace("[first] ", "").replace("[second] ", "").replace("third", "node_0")
    unnamed = RegionModel(dovetail.open(onnx.parser.parse_model(text)))
    with pytest.raises(EngineError) as caught:
        Azure().load(unnamed, {})
    assert set(caught.value.nodes) == {"node_1", "node_2", "node_0"}
    assert [node.name or "" for node in unnamed.model.graph] == ["", "", "node_0"], "the caller's model stays"
    assert Cpu().load(unnamed, {"threads": 1}).facts["nodes"] == 3


def test_processes_are_used_again_and_replaced_when_they_end(region, monkeypatch):
    """Importing ONNX Runtime takes a second, which a probe of thousands of nodes pays once."""
    monkeypatch.setenv(Cpu.provider.variable, sys.prefix)
    engine, x = Cpu(), np.ones((2, 4), np.float32)
    first = engine.load(region, {"threads": 1})
    tool = first._host._tool
    first.close()
    second = engine.load(region, {"threads": 1})
    assert second._host._tool is tool
    beside = engine.load(region, {"threads": 1})
    assert beside._host._tool is not tool, "sessions that live at once are apart"
    with pytest.raises(EngineError):
        tool.ask("no_such_function")
    tool.close()  # as if it had crashed
    second.close()
    third = engine.load(region, {"threads": 1})
    np.testing.assert_allclose(third.run({"x": x})["y"], beside.run({"x": x})["y"])


def test_a_provider_that_is_not_built_in_is_named(region, where):
    with pytest.raises(EngineError, match="onnxruntime .* has no CANNExecutionProvider"):
        Cann().load(region, {})


def test_a_session_fails_with_the_name_of_its_provider(region, where):
    session = Cpu().load(region, {})
    with pytest.raises(EngineError, match=r"(CPUExecutionProvider|onnxruntime-ep-test-cpu)"):
        session.run({"x": np.zeros((3, 9), np.float32)})
    session.close()


def test_a_device_that_disappears_is_one_message_and_the_next_call_starts_again(monkeypatch, region):
    """With a driver that ends its process, as one does whose device is gone."""
    monkeypatch.setenv("DOVETAIL_TEST_CPU_ENV", sys.prefix)
    engine, x = Cpu(), np.ones((2, 4), np.float32)
    session = engine.load(region, {})
    first = session.run({"x": x})["y"]
    process = session._host._tool._process.pid
    os.kill(process, signal.SIGSTOP)  # so that it ends while it is asked
    threading.Timer(0.5, os.kill, (process, signal.SIGKILL)).start()
    with pytest.raises(EngineError, match="onnxruntime-ep-test-cpu ended with signal SIGKILL"):
        session.run({"x": x})
    np.testing.assert_array_equal(session.run({"x": x})["y"], first)
    process = session._host._tool._process.pid
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    np.testing.assert_array_equal(session.run({"x": x})["y"], first)
    session.close()


@pytest.mark.parametrize(
    ("engine", "says"),
    [(Lacking, "onnxruntime-ep-lacking is not installed"), (Cann, "onnxruntime-cann is not installed")],
)
def test_an_engine_that_is_not_here_says_what_to_install(engine, says):
    found = engine().available()
    assert not found.ok
    assert says in found.why and f"DOVETAIL_{engine.provider.key}_ENV=PATH" in found.why


def test_a_library_for_another_onnxruntime_says_what_to_install(monkeypatch, tmp_path):
    library = tmp_path / "onnxruntime_ep_lacking"
    library.mkdir()
    (library / "provider.so").write_text("not for this one")
    (library / "__init__.py").write_text(f"get_library_path = lambda: {str(library / 'provider.so')!r}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("DOVETAIL_TEST_LACKING_ENV", "")
    found = Lacking().available()
    assert not found.ok
    assert f"does not load in onnxruntime {onnxruntime.__version__}" in found.why
    assert "pip install -U onnxruntime onnxruntime-ep-lacking" in found.why


def test_an_environment_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("DOVETAIL_QNN_ENV", str(tmp_path / "gone"))
    found = Qnn().available()
    assert not found.ok and "gone" in found.why


def test_an_environment_without_onnxruntime_says_so(monkeypatch, region, tmp_path):
    import subprocess

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    monkeypatch.setenv("DOVETAIL_TEST_CPU_ENV", str(tmp_path / "env"))
    with pytest.raises(EngineError, match="No module named 'onnxruntime'") as caught:
        Cpu().load(region, {})
    assert "pip install onnxruntime" in caught.value.hint


BACKEND = """
backend: test-azure
device: cloud
opset: 13..21
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {"Conv, Relu, MaxPool, Gemm, Flatten": {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [azure, onnxruntime-cpu]}
"""


def test_refused_nodes_are_placed_elsewhere_in_one_round(with_backend):
    from pathlib import Path

    plugins = with_backend(BACKEND)
    plugins.registry.engine("azure", f"{__name__}:Azure")
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    result = dovetail.compile(digits, "test-azure", plugins=plugins)
    assert {node.backend for node in result.plan.nodes} == {"host"}
    reasons = {remark.why for remark in result.remarks if remark.kind == "failed" and remark.node == "conv_2"}
    assert any("leaves" in why and "to the CPU" in why for why in reasons)


@pytest.mark.parametrize("word", ["test_cpu={}", "{}"], ids=["of-one-engine", "of-all-that-are-not-here"])
def test_engine_env_names_the_environment(region, monkeypatch, word):
    """The other environment is this one, in a process of its own."""
    import argparse

    from dovetail_commands import add_engine_env

    monkeypatch.setattr(Provider, "_is_installed", lambda self: False)
    for variable in ("DOVETAIL_TEST_CPU_ENV", "DOVETAIL_ENGINE_ENV"):
        monkeypatch.setenv(variable, "")
    parser = argparse.ArgumentParser()
    add_engine_env(parser)
    parser.parse_args(["--engine-env", word.format(sys.prefix)])
    assert Cpu().available() == (True, f"in {sys.prefix}")
    session = Cpu().load(region, {})
    assert session.run({"x": np.zeros((2, 4), np.float32)})["y"].tolist() == [[0.5] * 4] * 2
    session.close()


def test_engine_env_that_is_not_there_is_refused(tmp_path, capsys):
    import argparse

    from dovetail_commands import add_engine_env

    parser = argparse.ArgumentParser()
    add_engine_env(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--engine-env", f"webgpu={tmp_path / 'gone'}"])
    assert "there is no environment" in capsys.readouterr().err


def test_verify_names_the_engine(region, tmp_path, with_backend):
    from pathlib import Path

    plugins = with_backend(BACKEND.replace("azure", "cpu-provider").replace("test-cpu-provider", "test-azure"))
    plugins.registry.engine("cpu-provider", f"{__name__}:Cpu")
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    result = dovetail.compile(digits, "test-azure", plugins=plugins, verify=False)
    found = dovetail.verify(digits, result, plugins=plugins)
    assert found.lines()[-1] == "computed by onnxruntime-ep-test-cpu (test-azure)"


class Integers(ProviderEngine):
    """A provider that takes nothing, and may leave what reads no floats to the CPU."""

    name = "onnxruntime-ep-test-integers"
    provider = Provider("AzureExecutionProvider", "TEST_AZURE", "", "onnxruntime")
    leaves_integers = True


def test_what_reads_floats_is_refused_where_arithmetic_of_shapes_may_stay():
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[N,4] x, int64[2] s) => (float[P,Q] y) {
      [twice] t = Add(s, s) [named] y = Reshape(x, t) }"""
    opened = RegionModel(dovetail.open(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))))
    with pytest.raises(EngineError) as caught:
        Integers().load(opened, {})
    assert caught.value.nodes == ("named",)


def context(**attributes):
    node = onnx.helper.make_node("EPContext", ["x"], ["y"], "program", domain="com.microsoft", **attributes)
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:])
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    return dovetail.open(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize(
    "name", ["a.bin", "artifacts/qnn/region_0/a.bin", "/home/evil/a.bin", "..\\..\\a.bin", "../a.bin"]
)
def test_a_provider_gets_the_program_of_the_artifact_and_no_other_path(name, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"program")
    more = {"onnx_model_filename": "/home/evil.onnx", "embed_mode": 1, "library": "evil.so", "partition_name": "p"}
    region = RegionModel(context(ep_cache_context=name, main_context=1, **more), artifact=tmp_path)
    model, entries = compiled_context(region, "acme")
    (node,) = onnx.load_model_from_string(model).graph.node
    assert {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute} == {
        "ep_cache_context": b"a.bin", "main_context": 1, "embed_mode": 0, "partition_name": b"p",
    }  # fmt: skip
    assert entries == {"ep.context_file_path": str(tmp_path / "loaded.onnx")}


@pytest.mark.parametrize("name", ["..", ".", "", "a/", "b.bin", "link.bin"])
def test_a_program_is_a_file_of_its_artifact(name, tmp_path):
    (tmp_path / "link.bin").symlink_to("/etc/hostname")
    with pytest.raises(EngineError, match="acme: the artifact has no file"):
        compiled_context(RegionModel(context(ep_cache_context=name), artifact=tmp_path), "acme")
