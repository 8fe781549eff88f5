"""Migration of outliers from activations into weights: the same function of floats, and less loss in integers."""

import dovetail
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError

from .conftest import with_weights

MATMUL = (
    "  Relu: {role",
    "  MatMul: {role: active, types: {A: q8, B: w1, Y: q8}}\n"
    "  Gemm: {role: active, types: {A: q8, B: w1, Y: q8}}\n  Relu: {role",
)
COLUMNS = ("  b32:", "  w1: {dtype: int8, scheme: symmetric, granularity: channel, axis: 1}\n  b32:")
NORM = "x = LayerNormalization (h, scale, bias)"
WRITTEN_OUT = """m = ReduceMean (h, axes) d = Sub (h, m) s = Mul (d, d) v = ReduceMean (s, axes)
  e = Add (v, epsilon) r = Sqrt (e) n = Div (d, r) g1 = Mul (n, scale)
  x = Add (g1, bias)"""
TWO = "[one] y = MatMul (x, w1) [two] z = MatMul (x, w2)"


def net(before, products=TWO, outputs="float[N,5,8] y, float[N,5,8] z"):
    return f"""<ir_version: 10, opset_import: ["": 21]>
    g (float[N,5,16] h) => ({outputs})
    <float[16] scale, float[16] bias, float[16,8] w1, float[16,8] w2, float[16,16] w0, float[1,1,16] factor> {{
      {before}
      {products}
    }}"""


def outlying(text):
    """A model two of whose channels are much larger than the others."""
    proto = onnx.parser.parse_model(text)
    for name, array in (("axes", np.array([-1])), ("epsilon", np.float32(1e-5))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    for name in ("scale", "factor"):
        (value,) = (value for value in proto.graph.value_info if value.name == name)
        array = np.ones([dim.dim_value for dim in value.type.tensor_type.shape.dim], np.float32)
        array[..., 3], array[..., 11] = 60, -45
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        proto.graph.value_info.remove(value)
    return with_weights(proto)


@pytest.fixture
def data():
    return {"h": np.random.default_rng(4).standard_normal((64, 5, 16)).astype(np.float32)}


@pytest.fixture
def plugins(installed):
    return installed(COLUMNS, MATMUL, ("  Mul: {role: active, types: {A: other, B: other, C: q8}}\n", ""))


def errors(text, data, plugins, refine="smooth"):
    """The result, and the SNR of its first output on the data."""
    result = dovetail.compile(outlying(text), "npu", data=data, plugins=plugins, refine=refine, verify=False)
    return result, dovetail.verify(outlying(text), result, data, plugins=plugins).outputs[0].snr_db


def of_smooth(result):
    return [remark for remark in result.remarks if remark.pass_ == "smooth"]


BEFORE = {
    "a layer normalization": NORM,
    "one that is written out": WRITTEN_OUT,
    "a Mul by a constant": "x = Mul (h, factor)",
    "a division": "i = Div (h, factor) x = Relu (i)",
    "a normalization and movement": "n = LayerNormalization (h, scale, bias) t = Transpose <perm = [1,0,2]> (n) "
                                    "x = Transpose <perm = [1,0,2]> (t)",
}  # fmt: skip


@pytest.mark.generated
@pytest.mark.parametrize("what", [what for what in BEFORE if what != "a division"])
def test_what_takes_up_a_scale(what, data, plugins):
    _, before = errors(net(BEFORE[what]), data, plugins, "none")
    result, after = errors(net(BEFORE[what]), data, plugins)
    (said,) = of_smooth(result)
    assert said.node == "one" and said.because == ("two",)
    assert "are divided by" in said.why
    assert after > before + 3
    assert result.plan.summary["refined"]["changed"] == {"smooth": 1}


def test_the_product_before_takes_it_up(data, plugins):
    text = net("a = Mul (h, factor) [zero] b = MatMul (a, w0) c = Add (b, bias) x = Relu (c)")
    result, _ = errors(text, data, plugins)
    assert {remark.node for remark in of_smooth(result)} == {"zero", "one"}


@pytest.mark.slow
def test_the_model_computes_the_same_in_floats(data, plugins):
    """What emitters are given has the same changes as what is carried out, before it is quantized."""
    from dovetail.compiler import Driver
    from dovetail.passes import Context, Request, compose

    for before in BEFORE.values():
        model = outlying(net(before))
        request = Request.of("npu", data=data, options={"refine": {"steps": ["equalize", "smooth"]}})
        ctx = Context(request, plugins=plugins)
        driver = Driver(model, ctx)
        work, plan = driver.decide()
        ctx.outcome.plan, ctx.outcome.decided = plan, work.clone()
        compose(ctx.registry, ("calibrate",), request, plugins).run(work, ctx)
        expected, found = (dovetail.compile(one, "host").run(data) for one in (model, ctx.outcome.decided))
        for name in expected:
            assert np.allclose(expected[name], found[name], rtol=1e-3, atol=1e-4 * np.abs(expected[name]).max())


LEFT = {
    "an activation": ("a = LayerNormalization (h, scale, bias) x = Tanh (a)", TWO, "no constant in front of it"),
    "an input of the model": ("x = Identity (h)", TWO, "no constant in front of it"),
    "another reader": (NORM, "[one] y = MatMul (x, w1) [two] z = Relu (x)", "others read it, too"),
    "another reader of the normalized": ("a = LayerNormalization (h, scale, bias) x = Relu (a)",
                                         "[one] y = MatMul (x, w1) [two] z = Relu (a)", "no constant in front of it"),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT)
def test_what_does_not(what, data, plugins):
    before, products, says = LEFT[what]
    outputs = "float[N,5,8] y, float[N,5,8] z" if products is TWO else "float[N,5,8] y, float[N,5,16] z"
    result, _ = errors(net(before, products, outputs), data, plugins)
    (said,) = of_smooth(result)
    assert (said.kind, said.node) == ("missed", "one")
    assert says in said.why
    assert result.plan.summary["refined"]["changed"] == {}


def test_channels_that_are_alike_stay(data, plugins):
    data["h"] = np.random.default_rng(0).uniform(-1, 1, data["h"].shape).astype(np.float32)
    model = with_weights(net("x = Mul (h, factor)"))
    model.graph.initializers["factor"].const_value = ir.Tensor(np.ones((1, 1, 16), np.float32), name="factor")
    rng = np.random.default_rng(0)
    for name in ("w1", "w2"):
        weight = rng.choice([-1, 1], (16, 8)) * rng.uniform(0.9, 1, (16, 8))
        model.graph.initializers[name].const_value = ir.Tensor(weight.astype(np.float32), name=name)
    result = dovetail.compile(model, "npu", data=data, plugins=plugins, refine="smooth", verify=False)
    (said,) = of_smooth(result)
    assert (said.kind, said.node) == ("analysis", "one")
    assert "stay as they are: SNR of its products" in said.why


def test_a_replay_has_the_same_factors(data, plugins, tmp_path):
    result, _ = errors(net(NORM), data, plugins, "smooth,rounding,bias")
    result.save(tmp_path)
    again = dovetail.compile(outlying(net(NORM)), plan=tmp_path, plugins=plugins)
    weights = [{name: value.const_value.numpy().tobytes() for name, value in one.model.graph.initializers.items()}
               for one in (result, again)]  # fmt: skip
    assert weights[0] == weights[1]


def test_numbers_that_are_not_finite(data, plugins):
    data["h"][3, 2, 1] = np.nan
    with pytest.raises(DovetailError, match="NaN"):
        errors(net(NORM), data, plugins)


def test_without_data(plugins):
    with pytest.raises(DovetailError, match="refinement 'smooth' needs data, and there is none"):
        dovetail.compile(outlying(net(NORM)), "npu", plugins=plugins, refine="smooth")


def test_alpha_lies_between_zero_and_one():
    from dovetail.errors import UsageError
    from dovetail.passes import Pipeline
    from dovetail.plugin import load_plugins

    with pytest.raises(UsageError, match="alpha is 1.5, and lies between 0 and 1"):
        Pipeline.parse("smooth{alpha=1.5}", load_plugins().registry)


def test_an_input_that_only_an_activation_reads_has_nothing_that_could_absorb_a_factor(data, plugins):
    """It failed with an AttributeError: an input has no producer."""
    result, _ = errors(net("x = Relu (h)", "[one] y = MatMul (x, w1)", "float[N,5,8] y"), data, plugins)
    (remark,) = of_smooth(result)
    assert (remark.kind, remark.node) == ("missed", "one") and "the channels of 'x' stay as they are" in remark.why


@pytest.mark.parametrize("channels, changed", [((3, 3), True), ((3, 11), False)])
def test_what_one_half_of_the_batches_says_has_to_hold_on_the_other(channels, changed, plugins):
    """A channel that is large in one recording alone would leave no room for that of another."""
    rows = np.random.default_rng(5).normal(0, 0.05, (2, 8, 5, 16)).astype(np.float32)
    for batch, channel in zip(rows, channels, strict=True):
        batch[..., channel] += 1
    proto = onnx.parser.parse_model(net(NORM, "y = MatMul (x, w1)", "float[N,5,8] y"))
    for name, array in (("scale", np.ones(16)), ("bias", np.zeros(16))):
        (value,) = (value for value in proto.graph.value_info if value.name == name)
        proto.graph.value_info.remove(value)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    data = [{"h": batch} for batch in rows]
    result = dovetail.compile(with_weights(proto), "npu", data=data, plugins=plugins, refine="smooth", verify=False)
    assert [remark.kind == "passed" for remark in of_smooth(result)] == [changed]
