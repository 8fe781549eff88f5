"""Data and models that cannot be calibrated or quantized as they are: one clear message each, and never a traceback."""

import re
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from onnx import helper, numpy_helper

from .conftest import NET

OBSERVERS = ["minmax", "percentile", "mse", "kl", "isotone"]
Q8 = "q8: {dtype: int8, scheme: symmetric}"
ONE_CONV = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,3,3] w1, float[4] b1> {
  [conv1] y = Conv <pads = [1,1,1,1]> (x, w1, b1)
}"""


@pytest.fixture
def compiled(compiled):
    """Compile, and compare what is computed."""
    return lambda *arguments, **request: compiled(*arguments, **{"verify": None, **request})


def observed_by(observer, scheme="symmetric", dtype="int8"):
    if observer == "isotone":
        # It is for probabilities, so it sees only the input; the rest has another observer.
        return [(Q8, f"p8: {{dtype: {dtype}, scheme: {scheme}, observer: isotone}}\n  {Q8}"),
                ("Conv: {role: active, types: {X: q8", "Conv: {role: active, types: {X: p8")]  # fmt: skip
    return [(Q8, f"q8: {{dtype: {dtype}, scheme: {scheme}, observer: {observer}}}")]


@pytest.mark.generated
@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize(
    ("scheme", "dtype"), [("symmetric", "int8"), ("asymmetric", "uint8"), ("power-of-two", "int8")]
)
@pytest.mark.parametrize("number", [0.0, 3.0, 1e-30])
def test_a_constant_activation(compiled, samples, observer, scheme, dtype, number):
    """Its range is a point; scale and zero point hold it and zero all the same."""
    data = {"x": np.full_like(samples["x"], number)}
    result = compiled(ONE_CONV, *observed_by(observer, scheme, dtype), data=data)
    assert result.plan.values["x"][0]["scale"] > 0
    (compared,) = result.verification.outputs
    assert not compared.broken and compared.max_abs <= max(number, 1) * 0.2


def test_a_bias_is_not_lost_beside_an_activation_that_is_nearly_zero(compiled, samples):
    """The scale of the products would be too small for it, so that of the weight grows."""
    data = {"x": samples["x"] * 1e-12}
    result = compiled(ONE_CONV, data=data)
    assert result.verification.outputs[0].snr_db > 20
    (remark,) = [remark for remark in result.remarks if remark.rule == "bias-range"]
    assert (remark.node, remark.why) == (
        "conv1",
        "'b1' is too large for the scale X*W, so the scale of 'w1' was raised",
    )
    replayed = compiled(ONE_CONV, data=None, plan=result.plan)
    assert replayed.plan.values["b1"] == result.plan.values["b1"]
    assert not [r for r in compiled(ONE_CONV).remarks if r.rule == "bias-range"]


@pytest.mark.generated
@pytest.mark.parametrize("observer", OBSERVERS[:-1])
@pytest.mark.parametrize(("scheme", "dtype"), [("symmetric", "int8"), ("asymmetric", "uint8"), ("asymmetric", "int8")])
def test_an_activation_that_is_all_negative(compiled, samples, observer, scheme, dtype):
    """The range goes up to zero, so that paddings and zeros are held exactly."""
    samples = {"x": -np.abs(samples["x"]) - 1}
    result = compiled(ONE_CONV, *observed_by(observer, scheme, dtype), data=samples)
    held = result.plan.values["x"][0]
    low, high = {"int8": (-128, 127), "uint8": (0, 255)}[dtype]
    assert low <= held["zero_point"] <= high
    assert held["zero_point"] == (high if scheme == "asymmetric" else 0)
    assert result.verification.outputs[0].snr_db > 20


def test_isotone_says_that_it_is_for_probabilities(compiled, samples):
    with pytest.raises(DovetailError, match=r"observer 'isotone' .* fails on 'x' .* is negative; isotone is for prob"):
        compiled(ONE_CONV, *observed_by("isotone"), data=samples)


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_an_input_that_is_infinite(compiled, samples, observer, number):
    samples = {"x": np.abs(samples["x"])}
    samples["x"][5, 1, 2, 3] = number
    with pytest.raises(DovetailError) as caught:
        compiled(ONE_CONV, *observed_by(observer), data=samples)
    assert str(caught.value).startswith(f"batch 5 of the data: observer '{observer}' of dovetail-quantize fails on 'x'")
    assert "a number is infinite or NaN" in str(caught.value)
    assert "compute 'conv1' in floats (--high conv1)" in caught.value.hint


def test_an_activation_that_may_not_be_quantized_stays_float(compiled, samples):
    """What the hint of the message says helps: logarithms of zero are infinite."""
    tail = """[log] l = Log (x)
  [first] k = Conv <pads = [1,1,1,1]> (l, w1, b1)
  [bounded] c = Clip (k, low, high)
  [second] y = Conv <pads = [1,1,1,1]> (c, w1, b1)"""
    net = ONE_CONV.replace("[conv1] y = Conv <pads = [1,1,1,1]> (x, w1, b1)", tail)
    net = net.replace("float[4] b1", "float[4] b1, float low, float high")
    samples = {"x": np.abs(samples["x"])}
    samples["x"][5, 1, 2, 3] = 0
    with pytest.raises(DovetailError, match="--high first"):
        compiled(net, data=samples)
    assert compiled(net, data=samples, high=["first"], verify=False).plan.values.keys() >= {"c"}


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("observer", OBSERVERS)
def test_samples_of_several_shapes(compiled, observer):
    """They are taken where the model leaves an extent open, and else refused before anything is run."""
    rng = np.random.default_rng(0)
    data = [{"x": np.abs(rng.standard_normal((1, 4, size, 2 * size))).astype(np.float32)} for size in (8, 12, 6)]
    wide = ONE_CONV.replace("float[1,4,8,8] x", "float[1,4,H,W] x").replace("float[1,4,8,8] y", "float[1,4,H,W] y")
    largest = max(one["x"].max() for one in data)
    scale = compiled(wide, *observed_by(observer), data=data).plan.values["x"][0]["scale"]
    assert largest / 512 < scale <= largest / 127 * 1.01
    with pytest.raises(DovetailError, match=r"batch 0 of the data: input 'x' wants \[1, 4, 8, 8\]"):
        compiled(ONE_CONV, *observed_by(observer), data=data)


@pytest.mark.parametrize("observer", OBSERVERS[:-1])
def test_a_value_per_channel_whose_channels_differ_between_samples(compiled, observer):
    """There is no scale per channel then."""
    net = ONE_CONV.replace("float[1,4,8,8] x", "float[1,4,8,W] x").replace("float[1,4,8,8] y", "float[1,4,8,W] y")
    type_ = f"{{dtype: int8, scheme: symmetric, granularity: channel, axis: 3, observer: {observer}}}"
    data = [{"x": np.ones((1, 4, 8, size), np.float32)} for size in (8, 9)]
    with pytest.raises(DovetailError, match=f"observer '{observer}' of dovetail-quantize"):
        compiled(net, (Q8, f"q8: {type_}"), data=data)


@pytest.mark.parametrize(("number", "noted"), [(1, True), (20, True), (21, False)])
def test_little_data_is_noted(compiled, number, noted):
    """A hundred samples are usual; a range of three says little about the others."""
    x = np.random.default_rng(0).standard_normal((number, 4, 8, 8)).astype(np.float32)
    for net in (ONE_CONV, ONE_CONV.replace("[1,4,8,8]", "[batch,4,8,8]")):
        result = compiled(net, data={"x": x})
        said = [text for text in result.notes() if "saturate" in text]
        assert len(said) == noted
        if noted:
            calibrating = {1: 1, 20: 15}[number]  # the others judge
            assert f"the scales of 2 values come from {calibrating} sample" in said[0]
            (remark,) = [remark for remark in result.remarks if remark.rule == "few-samples"]
            assert remark.suggest == "--data with more samples"


@pytest.mark.parametrize("given", ["low", "high", "pins"])
def test_an_override_for_a_node_that_does_not_exist(compiled, given):
    text = "conv9=npu" if given == "pins" else "conv9"
    with pytest.raises(DovetailError) as caught:
        compiled(**{given: [text]})
    assert "'conv9'" in str(caught.value) and "conv1" in str(caught.value)


def test_an_override_for_an_operator_that_does_not_exist(compiled):
    with pytest.raises(DovetailError) as caught:
        compiled(low=["Convv"])
    assert "'Convv'" in str(caught.value)
    with pytest.raises(DovetailError, match=r"inline.yaml:\d+: unknown operator 'Convv' \(did you mean 'Conv'\?\)"):
        compiled(NET, ("  Conv: {role", "  Convv: {role"))


def quantized(nodes, tensors, *, opset=21, x="float[1,4,8,8]", y="float[1,4,8,8]", domains=""):
    """A model that somebody else has quantized."""
    text = f'<ir_version: 10, opset_import: ["": {opset}{domains}]> g ({x} x) => ({y} y) {{ {nodes} }}'
    proto = onnx.parser.parse_model(text)
    for name, given in tensors.items():
        tensor = given if isinstance(given, onnx.TensorProto) else numpy_helper.from_array(given, name)
        proto.graph.initializer.append(tensor)
    return proto


def arrays(**changes):
    """Scales and zero points per tensor, and integer weights; `changes` replace some."""
    weights = np.random.default_rng(0).integers(-90, 90, (4, 4, 3, 3)).astype(np.int8)
    found = {"s": np.float32(0.03), "z": np.uint8(120), "w": weights, "ws": np.float32(0.01), "wz": np.int8(0)}
    return {name: np.asarray(array) for name, array in {**found, **changes}.items()}


IN = "q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)"
WEIGHT = "f = DequantizeLinear (w, ws, wz)"
CONV = "[conv] y = Conv <pads = [1,1,1,1]> (d, f)"
ALL = f"{IN} {WEIGHT} {CONV}"
CHANNELS = {"ws": np.full(4, 0.01, np.float32), "wz": np.zeros(4, np.int8)}
ALONG = f"{IN} f = DequantizeLinear <axis = 0> (w, ws, wz) {CONV}"
FLOAT8 = helper.make_tensor("z", onnx.TensorProto.FLOAT8E4M3FN, [], [0.0])

SOURCES = {
    "per tensor": (ALL, arrays(), {}),
    "per channel": (ALONG, arrays(**CHANNELS), {}),
    "unsigned weights": (ALL, arrays(w=arrays()["w"].view(np.uint8), wz=np.uint8(128)), {}),
    "16 bits": (ALL, arrays(s=np.float32(1e-4), z=np.int16(0)), {}),
    "an old opset": (ALL, arrays(), {"opset": 10}),
    "blocks": (f"d = Identity (x) f = DequantizeLinear <axis = 1, block_size = 2> (w, ws) {CONV}",
               {"w": arrays()["w"], "ws": np.full((4, 2, 3, 3), 0.01, np.float32)}, {}),
    "a scale that is computed": (
        f"m = ReduceMax <keepdims = 0> (x)  a = Abs (m)  t = Mul (a, s)  q = QuantizeLinear (x, t, z)"
        f"  d = DequantizeLinear (q, t, z)  {WEIGHT} {CONV}", arrays(s=np.float32(1 / 127)), {}),
    "float8": (f"q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s)  {WEIGHT} {CONV}",
               {**arrays(), "z": FLOAT8}, {}),
    "another domain": (f"q = com.microsoft.QuantizeLinear (x, s, z)  d = com.microsoft.DequantizeLinear (q, s, z)"
                       f"  {WEIGHT} {CONV}", arrays(), {"domains": ', "com.microsoft": 1'}),
    "integer operators": ("q = QuantizeLinear (x, s, z)  c = QLinearConv <pads = [1,1,1,1]> (q, s, z, w, ws, wz, s, z)"
                          "  y = DequantizeLinear (c, s, z)", arrays(), {}),
    "dynamically": ("q, s, z = DynamicQuantizeLinear (x)  c = ConvInteger <pads = [1,1,1,1]> (q, w, z)"
                    "  i = Cast <to = 1> (c)  y = Mul (i, s)", {"w": arrays()["w"]}, {}),
    "an input in integers": (f"d = DequantizeLinear (x, s, z)  {WEIGHT} {CONV}", arrays(), {"x": "uint8[1,4,8,8]"}),
    "an output in integers": (f"{ALL.replace('] y', '] p')}  y = QuantizeLinear (p, s, z)", arrays(),
                              {"y": "uint8[1,4,8,8]"}),
}  # fmt: skip


@pytest.mark.generated
@pytest.mark.parametrize("scheme", SOURCES)
def test_a_model_that_is_quantized_in_another_scheme(compiled, samples, scheme):
    """The backend has symmetric int8, with a scale per channel of the weights."""
    nodes, tensors, changes = SOURCES[scheme]
    data = samples
    if scheme == "an input in integers":
        data = {"x": np.random.default_rng(0).integers(0, 255, (8, 4, 8, 8)).astype(np.uint8)}
    minmax = ("observer: half", "observer: minmax")
    result = compiled(quantized(nodes, tensors, **changes), minmax, data=data)
    assert not result.verification.broken
    if scheme != "an output in integers":
        assert result.verification.outputs[0].snr_db > 20


INVALID = {
    "a scale that is no number": arrays(s=np.float32(np.nan)),
    "scales for other channels": arrays(ws=np.full(3, 0.01, np.float32), wz=np.zeros(3, np.int8)),
}


@pytest.mark.parametrize("mistake", INVALID)
def test_a_model_with_parameters_that_cannot_be(compiled, mistake):
    with pytest.raises(DovetailError) as caught:
        compiled(quantized(ALL, INVALID[mistake]))
    assert re.search(r"'\w+'", caught.value.message) and len(str(caught.value)) < 2000


@pytest.mark.parametrize("scale", [0.0, -0.1, 1e-40, 3e38])
def test_a_model_with_a_scale_that_holds_nothing(compiled, scale):
    """Engines compute with it, or it is refused."""
    try:
        result = compiled(quantized(ALL, arrays(s=np.float32(scale))))
    except DovetailError as error:
        assert error.hint
    else:
        assert result.plan.values


@pytest.mark.parametrize("size", [1e22, 1e29])
def test_huge_finite_data_calibrates(size):
    image = (np.random.default_rng(0).uniform(0, 1, (8, 1, 8, 8)) * size).astype(np.float32)
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    compiled = dovetail.compile(digits, "cpu-int8", data={"image": image})
    assert all(np.isfinite(value).all() for value in compiled.run({"image": image}).values())
