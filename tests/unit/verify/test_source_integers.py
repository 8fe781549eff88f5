"""An original in integers: a backend keeps them, and gives no less than they do, or the host computes them."""

import dovetail
import numpy as np
import pytest
from dovetail_verify.accuracy import source_integers
from onnx import numpy_helper, parser

HEAD = """<ir_version: 10, opset_import: ["": 21]>
g (float[4,64] x) => (float[4,64] y) """
CONSTANTS = """<float xs, uint8 xz, int8[64,64] w, float[64] ws, int8[64] wz, float s, uint8 z,
  float[64,64] v, int8[64,64] t, float ts, int8 tz>"""
QDQ = """xq = QuantizeLinear (x, xs, xz)  [d] xf = DequantizeLinear (xq, xs, xz)
  [weight] wf = DequantizeLinear <axis = 1> (w, ws, wz)  [product] p = MatMul (xf, wf)
  [pq] pq = QuantizeLinear (p, s, z)  [pd] pf = DequantizeLinear (pq, s, z) """
NETS = {
    "QDQ": QDQ + "y = Tanh (pf)",
    "QLinear": """[q] xq = QuantizeLinear (x, xs, xz)  [product] pq = QLinearMatMul (xq, xs, xz, t, ts, tz, s, z)
  [pd] pf = DequantizeLinear (pq, s, z)  y = Tanh (pf)""",
    "dynamic": """[q] xq, a, b = DynamicQuantizeLinear (x)  [product] p = MatMulInteger (xq, t, b, tz)
  pf = Cast <to = 1> (p)  ps = Mul (pf, a)  pt = Mul (ps, ts)  y = Tanh (pt)""",
    "QDQ and floats": QDQ + "e = Tanh (pf)  [more] y = MatMul (e, v)",
}
NUMBERS = np.random.default_rng(0)
DATA = [{"x": np.random.default_rng(n).standard_normal((4, 64)).astype(np.float32)} for n in range(12)]


def net(which):
    """A product of integers; the columns of its weight differ by a factor of a thousand in scale."""
    model = parser.parse_model(f"{HEAD} {CONSTANTS} {{ {NETS[which]} }}")
    integers = NUMBERS.integers(-127, 128, (64, 64)).astype(np.int8)
    arrays = {
        "xs": np.float32(8 / 255), "xz": np.uint8(120), "w": integers, "t": integers, "wz": np.zeros(64, np.int8),
        "ws": np.geomspace(1e-5, 1e-2, 64).astype(np.float32), "s": np.float32(0.1), "z": np.uint8(128),
        "ts": np.float32(1e-3), "tz": np.int8(0), "v": NUMBERS.normal(0, 0.1, (64, 64)).astype(np.float32),
    }  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(one), name) for name, one in arrays.items())
    return model


def said(compiled):
    return [remark.why for remark in compiled.remarks if remark.rule == "source-integers"]


def backends(compiled):
    return {node.name: node.backend for node in compiled.plan.nodes}


@pytest.mark.parametrize("which", ["QDQ", "QLinear", "dynamic"])
@pytest.mark.parametrize("more", [{}, {"all_integers": True}])
def test_nothing_is_rounded_a_second_time(which, more):
    """A scale for all columns instead of each one's own would leave nothing of the small columns."""
    compiled = dovetail.compile(net(which), "cpu-int8", data=DATA, **more)
    assert not compiled.plan.values and compiled.verification.worst_snr_db > 40


@pytest.fixture
def nothing_is_near(monkeypatch):
    """Stands for deep nets, where a few sums that an engine rounds otherwise are carried on until nothing is near."""
    monkeypatch.setattr(source_integers, "_SAME", 1000.0)
    monkeypatch.setattr(source_integers, "distance_from_itself", lambda *_: 999.0)


def test_the_kernels_of_the_original_compute_integers_of_which_less_would_be_left(nothing_is_near):
    """ONNX Runtime is the second engine of cpu-int8, and rounds as it does in the original."""
    compiled = dovetail.compile(net("QLinear"), "cpu-int8", data=DATA)
    assert set(backends(compiled).values()) == {"cpu-int8"} and compiled.verification.worst_snr_db == np.inf
    assert {region.engine for region in compiled.regions if region.backend == "cpu-int8"} == {"onnxruntime-cpu"}
    (why,) = said(compiled)
    assert why.startswith("cpu-int8:runtime=onnxruntime computes the original's own integers, because elsewhere")


def test_the_host_computes_integers_of_which_less_would_be_left(nothing_is_near):
    """Where the request names the engine, no other one of the backend is tried."""
    model, named = net("QDQ"), "cpu-int8:runtime=openvino"
    whole = dovetail.compile(model, named, data=DATA, all_integers=True)
    assert set(backends(whole).values()) == {"cpu-int8"} and not said(whole)
    compiled = dovetail.compile(model, named, data=DATA)
    assert set(backends(compiled).values()) == {"host"} and compiled.verification.worst_snr_db == np.inf
    (why,) = said(compiled)
    assert why.startswith("the host computes the original's own integers, because elsewhere the worst output has SNR ")
    assert "the original is 999.0 dB from itself" in why and why.endswith("; exact now")


def test_what_a_backend_quantizes_besides_stays_there(nothing_is_near, monkeypatch):
    monkeypatch.setattr(source_integers, "_CLEAR", -1000.0)  # whatever it gains
    compiled = dovetail.compile(net("QDQ and floats"), "cpu-int8", data=DATA)
    found = backends(compiled)
    assert said(compiled) and found["more"] == "cpu-int8"
    assert {found[name] for name in ("d", "weight", "product", "pq", "pd")} == {"host"}


def test_an_original_that_is_as_far_from_itself_stays(monkeypatch):
    monkeypatch.setattr(source_integers, "_SAME", 1000.0)
    monkeypatch.setattr(source_integers, "distance_from_itself", lambda *_: 10.0)
    compiled = dovetail.compile(net("QDQ"), "cpu-int8", data=DATA)
    assert set(backends(compiled).values()) == {"cpu-int8"} and not said(compiled)


@pytest.mark.parametrize("more", [{"pins": "product=cpu-int8"}, {"low": "*"}, {"all_integers": True}])
def test_who_says_where_nodes_are_computed_is_obeyed(nothing_is_near, more):
    compiled = dovetail.compile(net("QDQ"), "cpu-int8", data=DATA, **more)
    assert backends(compiled)["product"] == "cpu-int8" and not said(compiled)


@pytest.mark.parametrize("which", ["QDQ", "QLinear", "dynamic"])
def test_a_device_gives_no_less(which):
    """ppl-int8 takes no product whose operands are in integers already, so that these stay as they are."""
    compiled = dovetail.compile(net(which), "ppl-int8", data=DATA)
    assert compiled.verification.worst_snr_db > 40
