"""Placements that ONNX Runtime itself follows, and what it says about its own."""

from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from dovetail.plugin import RegionModel
from dovetail_host.layer_annotations import KEY, SETTING
from dovetail_host.onnxruntime_cpu import CPU, OnnxRuntimeCpu

from .models import parse

DIGITS = Path(__file__).parents[3] / "examples/digits/digits.onnx"


class OnAnotherDevice(OnnxRuntimeCpu):
    """A provider that every build for CPUs has, and that leaves all nodes of a model to the CPU."""

    providers = ("AzureExecutionProvider", CPU)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The digits, with a node of the host between two regions for the GPU."""
    folder = tmp_path_factory.mktemp("annotated")
    compiled = dovetail.compile(DIGITS, "gpu-fp16", pins=["softmax_1=host/float32"])
    compiled.save(folder)
    return folder, compiled


def annotations(path):
    nodes = onnx.load(path).graph.node
    return {node.name: {prop.key: prop.value for prop in node.metadata_props}.get(KEY) for node in nodes}


def test_nodes_name_their_backend_and_a_remark_the_setting(saved):
    folder, compiled = saved
    found = annotations(folder / "model.onnx")
    assert found["softmax_1"] == "host" and found["conv_1"] == "gpu-fp16" and None not in found.values()
    (remark,) = [remark for remark in compiled.remarks if remark.rule == "layer-annotations"]
    assert f"{SETTING} = 'cuda(=gpu-fp16); cpu(=host)'" in remark.why


def test_onnxruntime_takes_the_setting_and_computes_the_same(saved):
    folder, compiled = saved
    settings = ort.SessionOptions()
    settings.log_severity_level = 4  # it warns that there is no GPU
    settings.add_session_config_entry(SETTING, "cuda(=gpu-fp16); cpu(=host)")
    session = ort.InferenceSession(folder / "model.onnx", settings, ["CPUExecutionProvider"])
    feed = {"image": np.ones((1, 1, 8, 8), np.float32)}
    assert np.allclose(session.run(None, feed)[0], compiled.run(feed)["probabilities"], atol=1e-2)


def test_a_result_on_one_device_is_not_annotated(tmp_path):
    dovetail.compile(DIGITS, "host").save(tmp_path)
    assert set(annotations(tmp_path / "model.onnx").values()) == {None}


def test_nodes_that_a_provider_leaves_to_the_cpu_are_known_without_a_profile():
    if OnAnotherDevice.providers[0] not in ort.get_available_providers():
        pytest.skip("this build of ONNX Runtime has no such provider")
    region = RegionModel(parse("g (float[4] x) => (float[4] y) { h = Exp(x) y = Sin(h) }"))
    for engine, how in ((OnAnotherDevice(), "reported-on-cpu"), (OnnxRuntimeCpu(), "not-reported")):
        session = engine.load(region, {})
        session.run({"x": np.ones(4, np.float32)})
        assert set(session.executed().values()) == {("", how)}
