"""Cross-layer equalization: the same function of floats, and channels that lose less in integers."""

import dovetail
import numpy as np
import onnx_ir as ir
import pytest
from dovetail.passes import Context, Pipeline, Request
from dovetail.plugin import load_plugins

from .conftest import with_weights

PLAIN = """<ir_version: 10, opset_import: ["": 18]>
g (float[2,3,12,12] x) => (float[2,5] y)
<float[8,3,3,3] w1, float[8] b1, float[8,1,3,3] w2, float[6,8,1,1] w3, float[6] b3, float[6,7,2,2] w4, float[7] slope,
 float[343,5] w5, float[5] b5> {
  [conv] a = Conv <pads = [1,1,1,1]> (x, w1, b1)
  [relu] b = Relu (a)
  [depthwise] c = Conv <group = 8, pads = [1,1,1,1]> (b, w2)
  [pool] d = AveragePool <kernel_shape = [2,2], strides = [2,2]> (c)
  [pointwise] e = Conv (d, w3, b3)
  [leaky] f = LeakyRelu <alpha = 0.2> (e)
  [transposed] h = ConvTranspose (f, w4)
  [most] i = MaxPool <kernel_shape = [1,1]> (h)
  [flat] j = Flatten (i)
  [gemm] y = Gemm (j, w5, b5)
}"""


def unequal(model, by=50.0):
    """Scale channels of weights at random, so that their ranges differ."""
    rng = np.random.default_rng(7)
    for value in model.graph.initializers.values():
        array = value.const_value.numpy()
        if array.ndim > 1:
            factors = by ** rng.uniform(-1, 1, (array.shape[0], *[1] * (array.ndim - 1)))
            value.const_value = ir.Tensor((array * factors).astype(np.float32), name=value.name)
    return model


def equalized(model, pipeline="normalize,equalize{everywhere=true}"):
    """The model behind the pass, and what the pass says."""
    plugins = load_plugins()
    ctx = Context(Request(), plugins=plugins)
    result = Pipeline.parse(pipeline, plugins.registry).run(model.clone(), ctx)
    return result.model, [remark for remark in ctx.remarks if remark.pass_ == "equalize"]


def computed(model, shape, seed=3):
    feeds = {model.graph.inputs[0].name: np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}
    return dovetail.compile(model, "host").run(feeds)["y"]


def ranges(model, name):
    """The largest magnitudes of a weight per output channel and per input channel, groups apart."""
    array = np.abs(model.graph.initializers[name].const_value.numpy())
    rest = tuple(range(2, array.ndim))
    return array.max(axis=(1, *rest)), array.max(axis=(0, *rest))


def test_the_model_computes_the_same(tmp_path):
    before = unequal(with_weights(PLAIN))
    after, said = equalized(before)
    assert [remark.node for remark in said] == ["depthwise", "pointwise", "transposed", "gemm"]
    changed = [
        name
        for name, value in after.graph.initializers.items()
        if not np.array_equal(value.const_value.numpy(), before.graph.initializers[name].const_value.numpy())
    ]
    assert sorted(changed) == ["b1", "b3", "w1", "w2", "w3", "w4", "w5"]
    expected, found = (computed(model, (2, 3, 12, 12)) for model in (before, after))
    assert np.allclose(expected, found, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_the_ranges_on_both_sides_of_a_channel_are_equal():
    after, _ = equalized(unequal(with_weights(PLAIN)))
    outputs, _ = ranges(after, "w1")
    depthwise, _ = ranges(after, "w2")  # one input channel per output channel
    _, inputs = ranges(after, "w3")
    assert np.allclose(outputs, depthwise, rtol=0.05)
    assert np.allclose(depthwise, inputs, rtol=0.05)
    outputs, _ = ranges(after, "w3")
    inputs, behind = ranges(after, "w4")  # the input channels of a transposed convolution come first
    assert np.allclose(outputs, inputs, rtol=0.05)
    rows = np.abs(after.graph.initializers["w5"].const_value.numpy()).reshape(7, -1).max(axis=1)
    assert np.allclose(behind, rows, rtol=0.05)


def chain(middle, head="float[2,4,6,6] x", tail="float[2,4,6,6] y", more=""):
    return f"""<ir_version: 10, opset_import: ["": 18]>
    g ({head}) => ({tail}) <float[4,4,3,3] w1, float[4] b1, float[4,4,3,3] w2 {more}> {{
      [first] a = Conv <pads = [1,1,1,1]> (x, w1, b1)
      {middle}
    }}"""


SECOND = "[second] y = Conv <pads = [1,1,1,1]> (b, w2)"
KEPT = {
    "nothing": "b = Identity (a)",
    "prelu": "b = PRelu (a, slope)",
    "relu as clip": "b = Clip (a, zero)",
    "transposed twice": "t = Transpose <perm = [0,2,3,1]> (a) b = Transpose <perm = [0,3,1,2]> (t)",
    "reshaped": "t = Reshape (a, flat) r = Relu (t) b = Reshape (r, whole)",
    "padded": "t = Pad (a, pads) b = MaxPool <kernel_shape = [3,3]> (t)",
    "resized": 't = Resize <mode = "nearest"> (a, roi, twice) b = MaxPool <kernel_shape = [2,2], strides = [2,2]> (t)',
}
STOPPED = {
    "an activation that does not scale": "b = Sigmoid (a)",
    "a Clip at six": "b = Clip (a, zero, six)",
    "two readers": "b = Relu (a) c = Tanh (a)",
    "another path": "t = Relu (a) b = Add (t, a)",
    "channels that are mixed": "t = Transpose <perm = [0,2,1,3]> (a) b = Relu (t)",
    "padding with one": "t = Pad (a, pads, one) b = MaxPool <kernel_shape = [3,3]> (t)",
}
CONSTANTS = {
    "slope": np.full((4, 1, 1), 0.1, np.float32), "zero": np.float32(0), "six": np.float32(6), "one": np.float32(1),
    "flat": np.array([0, 4, 36]), "whole": np.array([0, 4, 6, 6]), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "roi": np.zeros(0, np.float32), "twice": np.array([1, 1, 2, 2], np.float32),
}  # fmt: skip


def built(text):
    import onnx

    proto = onnx.parser.parse_model(text)
    names = {name for node in proto.graph.node for name in node.input}
    rng = np.random.default_rng(0)
    for value in list(proto.graph.value_info):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        proto.graph.value_info.remove(value)
    for name in sorted(names & set(CONSTANTS)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(CONSTANTS[name]), name))
    return unequal(dovetail.open(proto))


@pytest.mark.parametrize("what", KEPT)
def test_what_may_stand_between(what):
    before = built(chain(KEPT[what] + SECOND))
    after, said = equalized(before)
    assert [remark.node for remark in said] == ["second"]
    expected, found = (computed(model, (2, 4, 6, 6)) for model in (before, after))
    assert np.allclose(expected, found, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("what", STOPPED)
def test_what_may_not(what):
    before = built(chain(STOPPED[what] + SECOND))
    after, said = equalized(before)
    assert not said
    weights = [model.graph.initializers["w1"].const_value.numpy() for model in (before, after)]
    assert np.array_equal(*weights)


def test_a_value_that_the_model_gives_away_stays():
    text = chain("b = Relu (a)" + SECOND, tail="float[2,4,6,6] y, float[2,4,6,6] b")
    assert not equalized(built(text))[1]


def test_a_weight_that_two_nodes_read_stays():
    text = chain("b = Relu (a) [second] c = Conv <pads = [1,1,1,1]> (b, w2) [third] y = Conv <pads=[1,1,1,1]> (c, w2)")
    assert not equalized(built(text))[1]


def test_channels_that_nothing_writes_or_reads_stay():
    model = built(chain("b = Relu (a)" + SECOND))
    weight = model.graph.initializers["w1"]
    array = weight.const_value.numpy().copy()
    array[1] = 0
    weight.const_value = ir.Tensor(array, name="w1")
    after, _ = equalized(model)
    assert np.isfinite(after.graph.initializers["w2"].const_value.numpy()).all()
    same = [model_.graph.initializers["w2"].const_value.numpy()[:, 1] for model_ in (model, after)]
    assert np.array_equal(*same)


PER_TENSOR = ("granularity: channel, axis: 0", "granularity: tensor")
TWO = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,3,3] w1, float[4] b1, float[4,4,3,3] w2> {
  [one] a = Conv <pads = [1,1,1,1]> (x, w1, b1) [relu] r = Relu (a) [two] y = Conv <pads = [1,1,1,1]> (r, w2)
}"""


def opposite(model):
    """Channels that one layer writes small and the next one reads large: a function of ordinary numbers."""
    factors = 30.0 ** np.array([-1, -0.3, 0.3, 1], np.float32)
    for name, by in (("w1", factors[:, None, None, None]), ("b1", factors), ("w2", 1 / factors[None, :, None, None])):
        value = model.graph.initializers[name]
        value.const_value = ir.Tensor((value.const_value.numpy() * by).astype(np.float32), name=name)
    return model


def test_unequal_channels_lose_much_less_in_integers(compiled):
    def snr(**request):
        return (
            compiled(opposite(with_weights(TWO)), plugins=None, verify=True, **request).verification.outputs[0].snr_db
        )

    assert snr(refine="equalize") > snr() + 10


def test_both_layers_must_be_quantized(compiled):
    model = opposite(with_weights(TWO))
    result = compiled(model, backends=["npu", "host"], pins=["two=host"], refine="equalize")
    assert result.plan.summary["refined"] == {"steps": {"npu": ["equalize"]}, "changed": {}}


@pytest.mark.slow
def test_a_chain_of_thousands_of_layers_is_swept_as_one():
    nodes = 1000
    values = ["x", *(f"r{i}" for i in range(nodes))]
    body = "\n".join(f"v{i} = Conv ({values[i]}, w{i}) r{i} = Relu (v{i})" for i in range(nodes))
    weights = ", ".join(f"float[2,2,1] w{i}" for i in range(nodes))
    text = f"""<ir_version: 10, opset_import: ["": 18]>
    g (float[1,2,3] x) => (float[1,2,3] y) <{weights}> {{ {body} y = Identity (r{nodes - 1}) }}"""
    model = unequal(with_weights(text), by=3.0)
    after, said = equalized(model)
    assert len(said) == nodes - 1
    (first, _), (_, second) = ranges(after, "w500"), ranges(after, "w501")
    assert np.allclose(first, second, rtol=0.5)
