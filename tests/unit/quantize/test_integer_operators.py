"""A source in QOperator form: its operators on integers go where their float forms go, with the scales that it has."""

from collections import Counter

import dovetail
import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

NET = """<ir_version: 7, opset_import: ["": 13, "com.microsoft": 1]>
g (float[1,4,8,8] x) => (float[1,5] y) {
  [q] xi = QuantizeLinear (x, xs, xz)
  [conv1] ai = QLinearConv <pads = [1,1,1,1]> (xi, xs, xz, w1, ws, wz, s, z, b1)
  [conv2] bi = QLinearConv <pads = [1,1,1,1]> (ai, s, z, w2, ws, wz, t, tz)
  [add] ci = com.microsoft.QLinearAdd (ai, s, z, bi, t, tz, u, tz)
  [pool] di = MaxPool <kernel_shape = [2,2], strides = [2,2]> (ci)
  [conv3] ei = QLinearConv <pads = [1,1,1,1]> (di, u, tz, w1, ws, wz, t, tz)
  [sigmoid] fi = com.microsoft.QLinearSigmoid (ei, t, tz, g, gz)
  [mul] hi = com.microsoft.QLinearMul (ei, t, tz, fi, g, gz, s, tz)
  [concat] ii = com.microsoft.QLinearConcat <axis = 1> (u, tz, hi, s, tz, di, u, tz)
  [conv4] ji = QLinearConv <pads = [1,1,1,1]> (ii, u, tz, w4, ws, wz, u, tz)
  [mean] ki = com.microsoft.QLinearGlobalAveragePool (ji, u, tz, v, tz)
  [flat] li = Flatten (ki)
  [product] mi = QLinearMatMul (li, v, tz, m, ms, mz, v, tz)
  [dq] y = DequantizeLinear (mi, v, tz)
}"""


def source(kind="uint8", seed=5):
    """The net with random weights; activations are asymmetric in uint8, symmetric in int8."""
    numbers = np.random.default_rng(seed)

    def integers(low, high, *shape, kind=np.int8):
        return numbers.integers(low, high, shape).astype(kind)

    dtype = np.dtype(kind).type
    relu, middle = (dtype(0), dtype(120)) if kind == "uint8" else (dtype(0), dtype(0))
    scales = {"xs": 0.03, "s": 0.02, "t": 0.024, "u": 0.05, "g": 1 / 256, "v": 0.01, "ms": 0.004}
    constants = {name: np.float32(number) for name, number in scales.items()}
    constants |= {"xz": middle, "z": relu, "tz": middle, "gz": dtype(0), "wz": np.zeros(4, np.int8), "mz": np.int8(0)}
    constants |= {"w1": integers(-60, 61, 4, 4, 3, 3), "w2": integers(-60, 61, 4, 4, 3, 3)}
    constants |= {"w4": integers(-60, 61, 4, 8, 3, 3), "m": integers(-90, 91, 4, 5)}
    constants |= {"ws": np.float32([0.002, 0.003, 0.0025, 0.002]), "b1": integers(-900, 900, 4, kind=np.int32)}
    model = parser.parse_model(NET)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items())
    return model


def samples(count=8):
    return [{"x": np.random.default_rng(n).standard_normal((1, 4, 8, 8)).astype(np.float32)} for n in range(count)]


def steps(model, compiled):
    """The largest difference from ONNX Runtime on the source, in steps of the output."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pairs = [(session.run(None, feeds)[0], compiled.run(feeds)["y"]) for feeds in samples(4)]
    return max(np.abs(one - other).max() for one, other in pairs) / 0.01


def compiled_for(model, backend, **more):
    return dovetail.compile(model, backend, data=samples(), target_only=True, **more)


def products(compiled):
    return Counter(node.backend for node in compiled.plan.nodes if node.op_type in ("Conv", "MatMul", "QLinearConv"))


@pytest.mark.parametrize(
    ("kind", "backend", "most"),
    [
        pytest.param("uint8", "cpu-int8", 1, id="uint8-cpu-int8"),
        pytest.param("int8", "cpu-int8", 1, id="int8-cpu-int8"),
        pytest.param("uint8", "qnn", 1, id="uint8-qnn: exactly the scales of the source"),
        pytest.param("int8", "qnn", 1, id="int8-qnn: the same numbers without a sign"),
        pytest.param("int8", "bpu-int8", 2, id="int8-bpu: some of its averages are rounded otherwise"),
        pytest.param("uint8", "bpu-int8", 12, id="uint8-bpu: half the steps, over the same range"),
        pytest.param("int8", "tensorrt", 3, id="int8-tensorrt: products of float16"),
        pytest.param("uint8", "gpu-fp16", 3, id="uint8-gpu-fp16: products of float16"),
    ],
)
def test_products_go_to_the_backend(kind, backend, most):
    model = source(kind)
    compiled = compiled_for(model, backend)
    assert products(compiled)[backend] >= 4 and not products(compiled)["host"]
    assert steps(model, compiled) <= most + 0.01
    assert {node.name for node in compiled.plan.nodes} >= {"conv1", "conv2", "conv3", "conv4"}, "names stay"


@pytest.mark.processor
@pytest.mark.parametrize("seed", range(3))
def test_signed_integers_behind_a_concat_are_those_of_the_source(seed):
    """OpenVINO computes the convolution behind it 3 to 6 steps off on some CPUs, which a fusion barrier prevents."""
    model = source("int8", seed)
    assert steps(model, compiled_for(model, "cpu-int8")) <= 1.01


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("backend", ["cpu-int8", "qnn", "ppl-int8", "bpu-int8"])
def test_saved_results_and_replayed_plans_are_the_same_to_the_bit(backend, tmp_path):
    model = source()
    compiled = compiled_for(model, backend)
    compiled.save(tmp_path / "out")
    loaded = dovetail.load(tmp_path / "out")
    replayed = dovetail.compile(model, backend, plan=tmp_path / "out" / "plan.yaml", target_only=True)
    for feeds in samples(3):
        expected = compiled.run(feeds)["y"]
        np.testing.assert_array_equal(loaded.run(feeds)["y"], expected)
        np.testing.assert_array_equal(replayed.run(feeds)["y"], expected)


def test_the_weights_are_those_of_the_source():
    """No weight is rounded again: the integers that are stored are the same."""
    model = source()
    compiled = compiled_for(model, "qnn")
    stored = [numpy_helper.to_array(one) for one in model.graph.initializer if one.name in ("w1", "w2", "w4")]
    found = [one.const_value.numpy() for one in compiled.model.graph.initializers.values() if one.dtype.name == "INT8"]
    assert all(any(np.array_equal(one, other) for other in found) for one in stored)
    assert {one["source"] for values in compiled.plan.values.values() for one in values} <= {
        "source model", "X*W of conv1", "range of the source model",
    }  # fmt: skip


def test_what_stays_on_the_host_keeps_its_operators():
    """The host computes integers by their own kernels, and nothing is written out for it."""
    compiled = compiled_for(source(), "host")
    assert {"QLinearConv", "QLinearAdd", "QLinearConcat"} <= {node.op_type for node in compiled.model.graph}
    assert not compiled.plan.edits
    pinned = compiled_for(source(), "qnn", pins="conv1=host")
    assert {node.op_type for node in pinned.plan.nodes if node.name == "conv1"} == {"QLinearConv"}
    (why,) = (
        one.why for one in compiled_for(source(), "tensorrt").remarks if one.node == "conv2" and one.rule == "write-out"
    )
    assert "x is uint8; allowed: int8" in why, "TensorRT has no unsigned integers"


def test_a_pin_says_how_to_get_an_operator_on_integers_to_a_backend():
    with pytest.raises(dovetail.DovetailError, match="--edit write-out=conv2"):
        compiled_for(source(), "qnn", pins="conv2=qnn")
    compiled = compiled_for(source(), "qnn", pins="conv2=qnn", edits="write-out=conv2")
    assert {node.backend for node in compiled.plan.nodes if node.name == "conv2"} == {"qnn"}


def test_a_zero_point_of_another_type_is_refused_by_name():
    model = parser.parse_model(NET.replace("(xi, xs, xz, w1", "(xi, xs, wrong, w1"))
    model.graph.initializer.extend(source().graph.initializer)
    model.graph.initializer.append(numpy_helper.from_array(np.int8(0), "wrong"))
    with pytest.raises(dovetail.DovetailError, match="'conv1'.*QLinearConv"):
        compiled_for(model, "qnn")
