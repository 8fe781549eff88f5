"""Whole nets as TensorRT engines: one engine where one can be, and the same results on ONNX Runtime alone."""

import dovetail
import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import pytest
from dovetail.planning import get_placement

from .engine_nets import ENGINE_NETS, HEADS, SIZE, WIDTH, samples
from .nets import images, net

IMAGES = {"image": ((1, 3, SIZE, SIZE), (2, 3, SIZE, SIZE), (8, 3, SIZE, SIZE))}
CACHE = tuple((batch, HEADS, length, WIDTH // HEADS) for batch, length in ((1, 0), (1, 16), (4, 32)))
PROFILES = {
    "resnet": IMAGES,
    "detector": IMAGES,
    "bert": dict.fromkeys(("words", "mask"), ((1, 1), (2, 8), (4, 32))),
    "decoder": {"words": ((1, 1), (1, 1), (4, 32)), "past_keys": CACHE, "past_values": CACHE},
}
WHOLE = ("resnet", "bert", "decoder")
"""Those of which an engine holds everything."""


@pytest.fixture(scope="module")
def compiled():
    """The nets, each compiled once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = dovetail.compile(ENGINE_NETS[name](), "tensorrt", profiles=PROFILES[name])
        return made[name]

    return get


def engines(result):
    return [node for node in result.model.graph if node.domain == "dovetail.tensorrt"]


def outputs(model, feeds):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds)))


@pytest.mark.parametrize("name", WHOLE)
def test_a_net_is_one_engine(compiled, name):
    result = compiled(name)
    assert [node.op_type for node in result.model.graph] == ["region_0"]
    (call,) = engines(result)
    assert call.attributes["enable_fp16"].value == 1
    bounds = {text.partition(":")[0] for text in call.attributes["max_shapes"].value}
    assert bounds == set(PROFILES[name])


def test_a_vision_transformer_is_one_engine():
    result = dovetail.compile(net("vit"), "tensorrt")
    assert [node.op_type for node in result.model.graph] == ["region_0"]


def test_behind_an_engine_the_tail_of_a_detector_runs_on_the_host(compiled):
    result = compiled("detector")
    (call,) = engines(result)
    assert "nms" in {node.name for node in result.model.graph}
    kinds = {value.dtype.name for value in (*call.inputs, *call.outputs) if not value.is_initializer()}
    assert kinds <= {"FLOAT", "FLOAT16"}, "no extents cross the border of the engine"
    behind = {get_placement(node).backend for node in result.model.graph if node is not call}
    assert behind == {"host"}


@pytest.mark.parametrize("name", ENGINE_NETS)
def test_it_computes_what_the_original_computes(compiled, name):
    result, feeds = compiled(name), samples(name)
    exact = outputs(ENGINE_NETS[name]().SerializeToString(), feeds)
    for output, array in result.run(feeds).items():
        assert array.shape == exact[output].shape
        np.testing.assert_allclose(array, exact[output], atol=0.02 * max(1, np.abs(exact[output]).max()))


@pytest.mark.parametrize("name", ENGINE_NETS)
def test_calls_and_inlined_nodes_give_the_same_bits(compiled, name, tmp_path):
    compiled(name).save(tmp_path / "out")
    path = tmp_path / "out" / "model.onnx"
    onnx.checker.check_model(str(path))
    model = onnx.load(path)
    assert {function.domain for function in model.functions} == {"dovetail.tensorrt"}
    inlined = onnx.inliner.inline_local_functions(model)
    assert not inlined.functions
    feeds = samples(name)
    called, inside = outputs(str(path), feeds), outputs(inlined.SerializeToString(), feeds)
    for output, array in called.items():
        np.testing.assert_array_equal(array, inside[output])


@pytest.mark.parametrize("other", ["gpu-fp16", "cpu-bf16"])
def test_what_engines_leave_goes_to_the_next_backend(other):
    result = dovetail.compile(ENGINE_NETS["detector"](), ["tensorrt", other], profiles=IMAGES, pins=["head=" + other])
    placed = {node.name: node.backend for node in result.plan.nodes}
    assert placed["head"] == other
    assert {"tensorrt", other, "host"} == set(placed.values())
    feeds = samples("detector")
    exact = outputs(ENGINE_NETS["detector"]().SerializeToString(), feeds)
    found = "gathernd_0_out"
    np.testing.assert_allclose(result.run(feeds)[found][:3], exact[found][:3], rtol=0.1)


def test_an_engine_in_int8():
    data = images(8)
    result = dovetail.compile(net("mobilenet"), "tensorrt:precision=int8", data=data)
    (call,) = engines(result)
    assert call.attributes["enable_int8"].value == 1
    exact = outputs(net("mobilenet").SerializeToString(), data[0])
    for output, array in result.run(data[0]).items():
        cosine = np.vdot(array, exact[output]) / np.linalg.norm(array) / np.linalg.norm(exact[output])
        assert cosine > 0.99
