"""CPUs without VNNI: no sum of 8-bit products saturates, and weights of 7 bits are computed in integers."""

import dovetail
import numpy as np
import onnx
import onnx.reference
import pytest
from dovetail.plugin import RegionModel
from dovetail_cpu_int8 import engine
from dovetail_cpu_int8.saturation import sums_are_exact
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from onnx import numpy_helper

from .nets import compiled, net

IMAGES = "a = Conv (x, w, b) r = Relu (a) y = Conv (r, v, b)"
SCORES = "k = MatMul (x, m) t = Transpose <perm = [0,2,1]> (k) s = MatMul (k, t) y = Softmax (s)"
pytestmark = pytest.mark.processor

CPUS = {"vnni": frozenset({"avx2", "avx_vnni"}), "avx2": frozenset({"avx2"}), "unknown": None}


@pytest.mark.parametrize(
    ("body", "x", "backend", "expected"),
    [
        (IMAGES, "1,4,6,6", "cpu-int8", {"vnni": True, "avx2": False, "unknown": True}),
        (IMAGES, "1,4,6,6", "cpu-int8:weight_range=reduced", {"vnni": True, "avx2": True, "unknown": True}),
        # both operands are computed, and have all 8 bits
        (SCORES, "1,5,16", "cpu-int8:weight_range=reduced", {"vnni": True, "avx2": False, "unknown": True}),
        (SCORES, "1,5,16", "cpu-int8:weight_range=reduced,attention=floats", {"avx2": True}),
        (IMAGES, "1,4,6,6", "cpu-int8:weights=int8", {"avx2": True}),
    ],
)
def test_integers_are_multiplied_where_their_sums_are_exact(monkeypatch, body, x, backend, expected):
    model = compiled(net(body, x=x, y="1,5,5" if body is SCORES else "1,4,4,4"), backend).model
    for cpu, integers in expected.items():
        flags = CPUS[cpu]
        saturates = flags is not None and "avx_vnni" not in flags
        monkeypatch.setattr(engine, "saturates_dot_products", lambda saturates=saturates: saturates)
        assert engine.OpenVinoCpuInt8().computes_in_low_precision(model) == integers, cpu


def test_a_reduced_range_has_integers_up_to_64():
    result = compiled(net(IMAGES, y="1,4,4,4"), "cpu-int8:weight_range=reduced")
    weights = [value.const_value for value in result.model.graph.initializers.values() if len(value.shape) == 4]
    assert weights and {int(np.abs(weight.numpy().astype(int)).max()) for weight in weights} == {64}
    assert sums_are_exact(result.model)


# The forms of integers on which ONNX Runtime's own conversion to uint8 weights fails, and those that it knows.
FORMS = {
    "a scale per channel without a zero point": "d = DequantizeLinear <axis = 1> (w, s) y = MatMul (f, d)",
    "a shared weight and zero point":
        "d = DequantizeLinear (w, t, z) e = DequantizeLinear (w, t, z) a = MatMul (f, d) y = MatMul (a, e)",
    "a weight that is read as it is, too":
        "d = DequantizeLinear (w, t) a = MatMul (f, d) i = Cast <to = 1> (w) y = Add (a, i)",
    "products of integers": "a = MatMulInteger (q, w, u) y = Cast <to = 1> (a)",
    "a product that gives integers": "a = QLinearMatMul (q, t, u, w, t, z, r, u) y = DequantizeLinear (a, r, u)",
}  # fmt: skip


@pytest.mark.parametrize("body", FORMS.values(), ids=FORMS)
def test_onnx_runtime_computes_exactly(body, monkeypatch):
    """Weights are near 127 and activations near 255, so that every sum would saturate."""
    monkeypatch.setattr("dovetail_host.session_source.saturates_dot_products", lambda: True)
    text = f"""<ir_version: 10, opset_import: ["": 20]> g (float[8,8] x) => (float[8,8] y)
        <float t = {{0.02}}, float r = {{20}}, uint8 u = {{0}}, int8 z = {{0}}> {{
            q = QuantizeLinear (x, t, u) f = DequantizeLinear (q, t, u) {body} }}"""
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    constants = {"w": rng.integers(100, 128, (8, 8)).astype(np.int8), "s": np.full(8, 0.02, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    x = rng.uniform(4, 5, (8, 8)).astype(np.float32)
    exact = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
    session = OnnxRuntimeCpu().load(RegionModel(dovetail.open(model)), {})
    np.testing.assert_allclose(session.run({"x": x})["y"], exact, rtol=1e-5)


def test_the_engine_says_what_it_does_without_vnni(monkeypatch):
    monkeypatch.setattr(engine, "saturates_dot_products", lambda: True)
    available = engine.OpenVinoCpuInt8().available()
    assert available.ok and "no VNNI" in available.why and "weight_range=reduced" in available.why
