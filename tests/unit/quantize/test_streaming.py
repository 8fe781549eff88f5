"""Calibration on data: read once, batch by batch, and extrema without the values themselves."""

import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import Format
from dovetail.plugin import Observer
from dovetail_quantize.extrema import ExtremaNodes
from dovetail_quantize.observers.extremes import MinMax
from onnx_ir import to_proto

from .conftest import NET, with_weights

Q8 = "q8: {dtype: int8, scheme: symmetric}"
OBSERVERS = ["minmax", "percentile", "mse", "kl"]
NOTED = []


class Noting(MinMax):
    """Notes which method is called with how many numbers."""

    def update(self, array):
        NOTED.append(("update", array.size))
        super().update(array)

    def extrema(self, low, high):
        NOTED.append(("extrema", low.size))
        super().extrema(low, high)


class OnlyUpdate(Observer):
    """An observer as vendors write it: two methods."""

    def __init__(self, format_):
        self._all = MinMax(format_)

    def update(self, array):
        self._all.update(array)

    def parameters(self):
        return self._all.parameters()


def observed_by(name):
    return Q8, f"q8: {{dtype: int8, scheme: symmetric, observer: {name}}}"


def scales(compiled):
    return {name: held[0]["scale"] for name, held in compiled.plan.values.items() if "batch" in held[0]["source"]}


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_extrema_beside_a_value(opset, axis):
    import onnxruntime

    text = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[2,3,4] x) => (float[2,3,4] y) {{ y = Neg (x) }}'
    model = with_weights(text)
    format_ = Format.of("int8[symmetric]" if axis is None else f"int8[symmetric,axis={axis}]")
    names = ExtremaNodes(model).add(model.graph.outputs[0], format_)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(to_proto(model.ir).SerializeToString())
    low, high, finite = session.run(list(names), {"x": x})
    over = None if axis is None else tuple(index for index in range(3) if index != axis % 3)
    assert np.array_equal(low, (-x).min(axis=over)) and np.array_equal(high, (-x).max(axis=over)) and finite == 0
    for number in (np.nan, np.inf, -np.inf):
        x[1, 2, 3] = number
        assert np.isnan(session.run(list(names), {"x": x})[2])


@pytest.mark.parametrize(
    ("given", "format_"),
    [
        ("float[0,4]", "int8[symmetric]"),  # there is no smallest number
        ("float[2,N]", "int8[symmetric]"),  # nor may there be
        ("float[2,6]", "int8[symmetric,axis=1,group=3]"),
        ("float[6]", "int8[symmetric,axis=0]"),
        ("float16[2,6]", "int8[symmetric]"),
    ],
)
def test_values_that_leave_the_engine_whole(given, format_):
    model = with_weights(f'<ir_version: 8, opset_import: ["": 21]> g ({given} x) => ({given} y) {{ y = Neg (x) }}')
    assert ExtremaNodes(model).add(model.graph.outputs[0], Format.of(format_)) is None


def test_an_observer_of_extrema_never_sees_computed_values(compiled, installed):
    plugins = installed(observed_by("noting"), fresh=True)
    plugins.registry.observer("noting", f"{__name__}:Noting")
    NOTED.clear()
    noted = scales(compiled(plugins=plugins))
    assert {size for method, size in NOTED if method == "extrema"} == {1}
    assert {size for method, size in NOTED if method == "update"} == {4 * 8 * 8}  # the input, one sample at a time
    plugins = installed(observed_by("both"), fresh=True)
    plugins.registry.observer("both", f"{__name__}:OnlyUpdate")
    assert scales(compiled(plugins=plugins)) == noted


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("observer", OBSERVERS)
def test_every_form_of_data_gives_the_same_scales(compiled, installed, samples, tmp_path, observer):
    rows = [{"x": row[None]} for row in samples["x"]]
    np.savez(tmp_path / "data.npz", **samples)
    for number, row in enumerate(rows):
        (tmp_path / "folder").mkdir(exist_ok=True)
        np.savez(tmp_path / "folder" / f"{number}.npz", **row)
    plugins = installed(observed_by(observer))
    forms = [samples, rows, iter(rows), lambda: iter(rows), tmp_path / "data.npz", tmp_path / "folder"]
    found = [scales(compiled(data=form, plugins=plugins)) for form in forms]
    assert found[0] and all(one == found[0] for one in found)


@pytest.mark.parametrize("share", [60, 90, 100])
def test_a_value_and_its_relu_share_a_scale(compiled, samples, share):
    """The numbers of the second one follow from the first one; both count."""
    shared = "Relu: {role: passive, types: q8}", "Relu: {role: passive, types: q8, same_scale: true}"
    net = NET.replace("r = Relu (a)", "r = Relu (x)").replace("p = MaxPool", "p = AveragePool")
    seen = samples["x"], np.maximum(samples["x"], 0)
    observed = observed_by(f"{{name: percentile, percentile: {share}}}")
    found = scales(compiled(net, shared, observed, data=samples, verify=False))
    magnitudes = np.abs(np.concatenate(seen)).reshape(-1)
    expected = np.quantile(magnitudes, share / 100, method="inverted_cdf") / 127
    assert found["r"] == found["x"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("observer", ["minmax", "percentile"])
def test_samples_of_several_shapes(compiled, installed, observer):
    open_net = NET.replace("float[1,4,8,8] x", "float[1,4,H,W] x").replace("float[1,8,4,4] y", "float[1,8,P,Q] y")
    rng = np.random.default_rng(0)
    data = [{"x": rng.standard_normal((1, 4, size, 2 * size)).astype(np.float32)} for size in (8, 12, 6)]
    found = scales(compiled(open_net, observed_by(observer), data=data))
    assert found["x"] == pytest.approx(max(np.abs(one["x"]).max() for one in data) / 127)


def test_samples_of_a_shape_that_the_model_does_not_take(compiled):
    data = [{"x": np.ones((1, 4, 8, 8), np.float32)}, {"x": np.ones((1, 4, 8, 9), np.float32)}]
    with pytest.raises(DovetailError, match=r"batch 1 of the data: input 'x' wants \[1, 4, 8, 8\]"):
        compiled(data=data)


@pytest.mark.generated
@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize(("operator", "number"), [("Log", -1.0), ("Reciprocal", 0.0), ("Sqrt", -2.0)])
def test_an_activation_that_is_not_finite(compiled, samples, observer, operator, number):
    samples["x"] = np.abs(samples["x"]) + 1
    samples["x"][5, 1, 2, 3] = number
    net = NET.replace("a = Conv <pads = [1,1,1,1]> (x,", "a = Conv <pads = [1,1,1,1]> (l,")
    net = net.replace("  [conv1]", f"  [before] l = {operator} (x)\n  [conv1]")
    with pytest.raises(DovetailError) as caught:
        compiled(net, observed_by(observer), data=samples)
    assert f"observer '{observer}' of dovetail-quantize" in str(caught.value)
    assert "fails on 'l' in int8[symmetric]: a number is infinite or NaN" in str(caught.value)


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("observer", OBSERVERS)
def test_activations_that_are_constant(compiled, samples, observer):
    samples["x"][:] = 0
    found = compiled(NET, observed_by(observer), data=samples)
    assert found.plan.values["x"][0]["scale"] == 1.0
    assert all(np.isfinite(array).all() for array in found.run({"x": samples["x"][:1]}).values())


@pytest.mark.parametrize("data", [[], iter(()), lambda: iter(())])
def test_data_without_a_batch(compiled, data):
    with pytest.raises(DovetailError, match="the data holds no batch to calibrate on"):
        compiled(data=data)


def test_one_sample_is_enough(compiled, samples):
    assert scales(compiled(data={"x": samples["x"][:1]}))["x"] == np.float32(np.abs(samples["x"][0]).max() / 127)


def test_weights_with_a_scale_per_group(compiled, installed, samples):
    """Scales stand in the tensor's order, as QuantizeLinear with blocks has them; a zero point of 0 is left out."""
    changes = [("w8: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0}",
                "w8: {dtype: int8, scheme: symmetric, granularity: group, axis: 1, group: 2}"),
               ("types: {X: q8, W: w8, B: b32, Y: q8}", "types: {X: q8, W: w8, B: float32, Y: q8}")]  # fmt: skip
    found = compiled(NET, *changes)
    blocked = [node for node in found.model.graph if "block_size" in node.attributes]
    assert [node.inputs[1].shape for node in blocked] == [(4, 2, 3, 3)] * 2
    given = with_weights(NET)
    for node in blocked:
        weight = given.graph.initializers[node.inputs[0].name[:2]].const_value.numpy()
        integers, scale = (value.const_value.numpy() for value in node.inputs)
        restored = integers.astype(np.float32) * np.repeat(scale, 2, axis=1)
        assert np.abs(restored - weight).max() <= scale.max() / 2 * 1.001
    assert np.isfinite(found.run({"x": samples["x"][:1]})["y"]).all()
