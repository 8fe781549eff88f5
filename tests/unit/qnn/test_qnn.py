"""Qualcomm's HTP: what the plan gives it, and with the emulator of onnxruntime-qnn, what it computes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import dovetail
import dovetail.plugin.loading
import numpy as np
import onnx
import pytest
from dovetail.passes import BackendChoice

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
LIBRARY = "onnxruntime_qnn"
ROWS = 24

needs_emulator = pytest.mark.skipif(
    importlib.util.find_spec(LIBRARY) is None and not os.environ.get("DOVETAIL_QNN_ENV"),
    reason="the emulator is not installed (pip install 'dovetail-qnn[emulator]')",
)


@pytest.fixture(scope="module")
def data():
    images = np.load(DIGITS / "test.npz")["image"][:ROWS]
    return [{"image": image[np.newaxis]} for image in images]


def compiled(data, backend="qnn", **request):
    return dovetail.compile(DIGITS / "digits.onnx", backend, data=data, fix_shapes={"image": [1, 1, 8, 8]}, **request)


@pytest.mark.parametrize("activations", ["uint8", "uint16"])
def test_the_whole_net_is_planned_for_it(data, activations):
    plan = dovetail.plan(
        DIGITS / "digits.onnx", f"qnn:activations={activations}", data=data, fix_shapes={"image": [1, 1, 8, 8]}
    )
    formats = {str(node.precision) for node in plan.nodes if node.backend == "qnn"}
    assert formats == {f"{activations}[asymmetric]"}
    assert {node.backend for node in plan.nodes} == {"qnn"}


def test_open_extents_are_refused_with_the_reason():
    plan = dovetail.plan(DIGITS / "digits.onnx", "qnn")
    assert {node.backend for node in plan.nodes} == {"host"}
    assert any("takes fixed shapes" in remark.why for remark in plan.remarks)


def test_without_the_emulator_the_result_says_so(data, monkeypatch):
    monkeypatch.delenv("DOVETAIL_QNN_ENV", raising=False)
    monkeypatch.setitem(sys.modules, LIBRARY, None)
    monkeypatch.setattr(importlib.util, "find_spec", _without(importlib.util.find_spec))
    result = compiled(data)
    assert any("onnxruntime-qnn is not installed" in note for note in result.notes())
    assert any("was not compiled" in remark.why for remark in result.remarks)
    assert result.verification.worst_snr_db > 40


def _without(find_spec):
    return lambda name, package=None: None if name == LIBRARY else find_spec(name, package)


@needs_emulator
@pytest.mark.parametrize("activations", ["uint8", "uint16"])
def test_it_computes_what_the_plan_says_and_nothing_is_on_the_cpu(data, activations):
    result = compiled(data, f"qnn:activations={activations}")
    assert "onnxruntime-cpu" not in result.summary()
    assert [node.op_type for node in result.model.graph if node.domain == "com.microsoft"] == ["EPContext"]
    assert result.verification.worst_snr_db > 38
    facts = next(remark.facts for remark in result.remarks if remark.rule == "artifact-facts")
    assert facts["nodes"] > 13 and "onnxruntime_qnn" in facts["tool"]


@pytest.mark.parametrize("form", ["plain", "chip"])
def test_what_a_chip_is_asked_for_is_checked_before_anything_is_compiled(data, form):
    """Also where nothing compiles: the options themselves are wrong."""
    wrong = {
        "plain": ("arch=68,activations=float16", "arch 68 has no float16, which is on chips from arch 69 on"),
        "chip": ("soc=sm8350,arch=75", "sm8350 is of arch 68, and arch=75 is asked for"),
    }
    options, why = wrong[form]
    result = compiled(data, f"qnn:{options}", verify=False)
    assert result.coverage().startswith("qnn 0/13 nodes (all refused), host 13")
    assert any(why in remark.why for remark in result.remarks)
    with pytest.raises(dovetail.DovetailError, match="unknown value 'sm1' of option 'soc'; there are any, qcm6490, "):
        compiled(data, "qnn:soc=sm1")


def test_every_chip_of_the_file_is_known():
    from dovetail_qnn.chips import options_of

    backend = dovetail.plugin.loading.load_chosen(dovetail.load_plugins().registry, BackendChoice("qnn"))
    for soc in backend.options["soc"]:
        said = options_of({"soc": soc})
        assert soc == "any" or said["htp_arch"] in backend.options["arch"] and int(said["soc_model"]) > 0
    assert options_of({"soc": "sm8650", "arch": "75"}) == {"htp_arch": "75", "soc_model": "57"}
    assert options_of({}) == {}


@needs_emulator
@pytest.mark.parametrize(
    ("options", "least"), [("weights=int4", 22), ("soc=sm8750", 38), ("soc=sm8450,activations=float16", 50)]
)
def test_contexts_for_a_chip_and_weights_of_4_bits_run(data, options, least):
    result = compiled(data, f"qnn:{options}")
    assert [node.op_type for node in result.model.graph if node.domain == "com.microsoft"] == ["EPContext"]
    assert result.coverage().startswith("qnn 13/13 nodes in 1 region")
    assert result.verification.worst_snr_db > least
    assert dict(pair.split("=") for pair in options.split(",")).items() <= result.plan.backends[0].options.items()


@needs_emulator
def test_the_saved_result_runs_here_and_in_plain_onnxruntime(data, tmp_path):
    result = compiled(data)
    result.save(tmp_path / "out")
    wanted = result.run(data[0])["probabilities"]
    np.testing.assert_array_equal(dovetail.load(tmp_path / "out").run(data[0])["probabilities"], wanted)
    np.save(tmp_path / "image.npy", data[0]["image"])
    done = subprocess.run([_python(), "-c", PLAIN, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), wanted)


PLAIN = """
import sys, numpy as np, onnxruntime as ort, onnxruntime_qnn as qnn
ort.register_execution_provider_library(qnn.get_ep_name(), qnn.get_library_path())
settings = ort.SessionOptions()
devices = [device for device in ort.get_ep_devices() if device.ep_name == qnn.get_ep_name()]
settings.add_provider_for_devices(devices[:1], {"backend_path": qnn.get_qnn_htp_path()})
session = ort.InferenceSession(sys.argv[1] + "/out/model.onnx", settings)
(found,) = session.run(None, {"image": np.load(sys.argv[1] + "/image.npy")})
np.save(sys.argv[1] + "/found.npy", found)
"""


def _python():
    environment = os.environ.get("DOVETAIL_QNN_ENV")
    return str(Path(environment) / "bin" / "python") if environment else sys.executable


@needs_emulator
def test_a_goal_is_met_on_the_emulator():
    images = np.load(DIGITS / "test.npz")["image"][:90]
    result = compiled([{"image": image[np.newaxis]} for image in images], min_snr=49)
    assert result.plan.summary["accuracy"]["met"]
    assert result.verification.worst_snr_db >= 49
    assert any(node.backend == "qnn" for node in result.plan.nodes)


@needs_emulator
def test_an_operator_that_the_htp_lacks_is_refused_by_name(tmp_path):
    from dovetail.plugin import EngineError, RegionModel
    from dovetail_qnn.htp import Htp

    text = '<ir_version: 10, opset_import: ["": 21]> g (float[2,4] x) => (float[2,4] y) { [det] y = Hardmax(x) }'
    with pytest.raises(EngineError) as caught:
        Htp().load(RegionModel(dovetail.open(onnx.parser.parse_model(text))), {})
    assert caught.value.nodes == ("det",)


@needs_emulator
def test_a_damaged_program_is_one_clear_message(data, tmp_path):
    compiled(data).save(tmp_path / "out")
    (binary,) = (tmp_path / "out" / "artifacts").rglob("*.bin")
    binary.write_bytes(b"no program")
    result = dovetail.load(tmp_path / "out")
    with pytest.raises(dovetail.DovetailError, match="net_qnn.bin is not the file that was saved"):
        result.run(data[0])


CONVOLUTIONS = """<ir_version: 9, opset_import: ["": 18]> g (float[1,4,16] x) => (float[1,4,7] y) {
  [plain] a = Conv <pads = [1, 1]> (x, w)  [depthwise] b = Conv <group = 4, dilations = [2]> (a, d)
  [strided] y = Conv <strides = [2], auto_pad = "VALID"> (b, w)
}"""


def with_weights(text, **shapes):
    """A net with random weights, and what to calibrate it on."""
    model, numbers = onnx.parser.parse_model(text), np.random.default_rng(0)
    for name, shape in shapes.items():
        array = numbers.normal(0, 0.3, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    shape = [extent.dim_value for extent in model.graph.input[0].type.tensor_type.shape.dim]
    return model, [{"x": numbers.normal(size=shape).astype(np.float32)} for _ in range(8)]


def test_convolutions_along_one_axis_are_taken():
    """The provider reshapes them to convolutions of height 1."""
    model, data = with_weights(CONVOLUTIONS, w=(4, 4, 3), d=(4, 1, 2))
    result = dovetail.compile(model, "qnn", data=data, target_only=True)
    assert {node.backend for node in result.plan.nodes} == {"qnn"}
    assert result.verification.worst_snr_db > 25


DETECTOR = """<ir_version: 9, opset_import: ["": 18]> g (float[1,3,8,8] x) => (float[1,9,64] y)
<float k = {300.0}, int64[3] flat = {1, 9, -1}> {
  r = Conv <pads = [1, 1, 1, 1]> (x, w)  c = Conv (r, b)  [boxes] d = Mul (c, k)
  e = Conv (r, s)  [scores] f = Sigmoid (e)  [join] j = Concat <axis = 1> (d, f)  [flatten] y = Reshape (j, flat)
}"""


def test_boxes_and_scores_are_joined_where_they_need_no_common_scale():
    """Of one scale for boxes of hundreds of pixels, scores up to 1 would have no step left."""
    shapes = {"w": (16, 3, 3, 3), "b": (4, 16, 1, 1), "s": (5, 16, 1, 1)}
    model, data = with_weights(DETECTOR, **shapes)
    result = dovetail.compile(model, "qnn", data=data, target_only=True)
    assert {node.name for node in result.plan.nodes if node.backend == "host"} == {"join", "flatten"}
    (why, *_) = (remark.why for remark in result.remarks if remark.rule == "shared-scale" and remark.node == "join")
    assert "'f' up to" in why and "one scale would leave few steps" in why
    exact = dovetail.compile(model, "host", data=data).run(data[0])["y"][:, 4:]
    assert np.abs(result.run(data[0])["y"][:, 4:] - exact).max() < 0.02
    more = DETECTOR.replace("[flatten] y", "[flatten] v").replace("(j, flat)", "(j, flat) y = Relu (v)")
    behind = dovetail.compile(with_weights(more, **shapes)[0], "qnn", data=data, target_only=True)
    assert {node.backend for node in behind.plan.nodes} == {"qnn"}, "an operator there computes from the result"
