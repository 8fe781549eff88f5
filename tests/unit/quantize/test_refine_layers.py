"""Rounding weights and correcting biases on data: what a layer loses never grows, and what the models compute."""

import math
import re

import dovetail
import numpy as np
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail_quantize.refining import activation_cache
from dovetail_quantize.refining.descent import choose
from dovetail_quantize.refining.layers import layer_of
from dovetail_quantize.refining.partition import blocks_of
from dovetail_quantize.refining.samples import RowSample, inputs_at, outputs_at, positions_of

from .conftest import with_weights

INT4 = ("w8: {dtype: int8,", "w8: {dtype: int4,")
GEMM = ("  Relu: {role", "  Gemm: {role: active, types: {A: q8, B: w8, Y: q8}}\n  Relu: {role")
NET = """<ir_version: 10, opset_import: ["": 21]>
g (float[N,4,8,8] x) => (float[N,4,8,8] y)
<float[8,4,3,3] w1, float[8] b1, float[8,1,3,3] w2, float[4,8,1,1] w3, float[4] b3> {
  [first] a = Conv <pads = [1,1,1,1]> (x, w1, b1)
  [relu] b = Relu (a)
  [depthwise] c = Conv <group = 8, pads = [1,1,1,1]> (b, w2)
  [pointwise] y = Conv (c, w3, b3)
}"""


@pytest.fixture
def pictures():
    """Samples whose neighbors are alike, as those of pictures are."""
    rng = np.random.default_rng(2)
    found = rng.standard_normal((128, 4, 10, 10)).cumsum(axis=2).cumsum(axis=3)
    found += found.mean(axis=1, keepdims=True)
    return {"x": (found[:, :, 2:, 2:] / 8).astype(np.float32)}


@pytest.fixture
def errors(compiled, pictures):
    """Compile NET on the pictures, and measure the error of its output on them."""

    def make(refine, *changes, text=NET, **request):
        result = compiled(text, *changes, data=pictures, refine=refine, **request)
        exact = dovetail.compile(with_weights(text) if isinstance(text, str) else text, "host").run(pictures)["y"]
        return result, float(((result.run(pictures)["y"] - exact) ** 2).mean())

    return make


def said(result, pass_):
    return {remark.node: remark.why for remark in result.remarks if remark.pass_ == pass_}


def gains(result, pass_):
    found = [re.search(r"(-?[\d.]+|inf) to (-?[\d.]+|inf) dB", why) for why in said(result, pass_).values()]
    return [(float(one[1]), float(one[2])) for one in found if one]


@pytest.mark.slow
def test_rounding_lowers_the_error_of_layers_and_of_the_result(errors):
    _, before = errors("none", INT4)
    result, after = errors("rounding", INT4)
    assert after < 0.6 * before
    assert len(gains(result, "round-weights")) >= 2
    assert all(after > before for before, after in gains(result, "round-weights"))
    assert result.plan.summary["refined"]["changed"]["rounding"] == len(gains(result, "round-weights"))


def test_every_weight_is_rounded_down_or_up(errors):
    """And the scales are those of the weights as they were."""
    result, _ = errors("rounding", INT4)
    stored = {name: value.const_value.numpy() for name, value in result.model.graph.initializers.items()}
    weight = with_weights(NET).graph.initializers["w1"].const_value.numpy()
    scale = stored["w1_scale"].reshape(-1, 1, 1, 1)
    assert np.allclose(stored["w1_scale"], np.abs(weight).max(axis=(1, 2, 3)) / 7)
    off = np.abs(stored["w1_int4"].astype(np.float32) - weight / scale)
    assert 0.5 < off.max() < 1.001


@pytest.mark.slow
def test_correcting_biases_lowers_the_error_of_layers_and_of_the_result(errors):
    _, before = errors("none", INT4)
    result, after = errors("bias", INT4)
    assert after < before
    assert gains(result, "correct-biases")
    assert all(after >= before for before, after in gains(result, "correct-biases"))


@pytest.mark.slow
def test_both_are_at_least_as_good_as_each(errors):
    rounding, bias = (errors(refine, INT4)[1] for refine in ("rounding", "bias"))
    result, both = errors("rounding,bias", INT4)
    assert both < 0.6 * bias
    assert both < 1.1 * rounding
    # Biases are corrected for the weights of the source model, not for the rounded ones.
    assert max(before for before, _ in gains(result, "correct-biases")) < 30


@pytest.mark.slow
def test_the_mean_of_the_result_is_that_of_the_float_model(errors, pictures):
    exact = dovetail.compile(with_weights(NET), "host").run(pictures)["y"].mean(axis=(0, 2, 3))
    means = [errors(refine, INT4)[0].run(pictures)["y"].mean(axis=(0, 2, 3)) for refine in ("none", "bias")]
    before, after = (np.abs(mean - exact).max() for mean in means)
    assert after < 0.5 * before


def test_a_layer_without_a_bias_gets_one_in_the_format_of_the_others(errors):
    result, _ = errors("bias", INT4)
    (held,) = result.plan.values["c_bias"]
    assert held["format"] == "int32[symmetric,axis=0]"
    assert "depthwise" in said(result, "correct-biases")


def test_no_bias_is_left_where_none_is_needed(compiled, pictures):
    """On another backend, and where nothing is corrected."""
    result = compiled(NET, data=pictures, backends=["npu", "host"], pins=["depthwise=host"], refine="bias")
    (node,) = (node for node in result.model.graph if node.name == "depthwise")
    assert len(node.inputs) == 2
    assert "c_bias" not in result.plan.values
    assert "c_bias" not in result.model.graph.initializers


MATMUL = ("  Relu: {role", "  MatMul: {role: active, types: {A: q8, B: w8, Y: q8}}\n  Relu: {role")


def test_a_product_without_a_bias_is_corrected_where_one_is_added(compiled):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[N,6] x) => (float[N,5] y, float[N,5] z) <float[6,5] w, float[6,5] v, float[5] c> {
      [one] a = MatMul (x, w) [sum] y = Add (a, c) [two] z = MatMul (x, v) }"""
    data = {"x": (np.random.default_rng(0).standard_normal((64, 6)) + 2).astype(np.float32)}
    result = compiled(text, INT4, MATMUL, ("granularity: channel, axis: 0", "granularity: tensor"),
                      data=data, refine="bias")  # fmt: skip
    notes = said(result, "correct-biases")
    assert "its bias is corrected" in notes["one"]
    assert notes["two"] == "it has no bias to correct, and nothing adds a constant to it"
    exact = dovetail.compile(with_weights(text), "host").run(data)["y"].mean(axis=0)
    assert np.abs(result.run(data)["y"].mean(axis=0) - exact).max() < 0.02


def test_a_mean_that_few_samples_leave_uncertain_is_not_added(compiled):
    """Errors that differ from sample to sample as much as noise does say nothing about a bias."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[N,32] x) => (float[N,5] y) <float[32,5] w, float[5] c> { [gemm] y = Gemm (x, w, c) }"""
    rng = np.random.default_rng(0)
    few, many = ({"x": rng.standard_normal((number, 32)).astype(np.float32)} for number in (3, 4096))
    exact = dovetail.compile(with_weights(text), "host").run(many)["y"]
    changes = INT4, GEMM, ("granularity: channel, axis: 0", "granularity: tensor")
    errors_ = [((compiled(text, *changes, data=few, refine=refine).run(many)["y"] - exact) ** 2).mean()
               for refine in ("none", "bias")]  # fmt: skip
    assert errors_[1] <= errors_[0] * 1.05


@pytest.mark.parametrize("refine", ["rounding", "bias"])
def test_numbers_that_are_not_finite(compiled, installed, refine):
    """The scales come from a plan, so nothing else has looked at the data."""
    plugins = installed()
    good = np.random.default_rng(0).standard_normal((2, 4, 8, 8)).astype(np.float32)
    plan = compiled(NET, data={"x": good}, plugins=plugins).plan
    bad = good.copy()
    bad[0, 0, 0, 0] = np.inf  # of the two rows, which are independent, this one calibrates
    with pytest.raises(DovetailError, match="node 'first': its .* the data .* infinite or NaN"):
        compiled(NET, data={"x": bad}, plan=plan, plugins=plugins, refine=refine)


@pytest.mark.parametrize("refine", ["rounding", "bias"])
def test_data_without_a_batch(compiled, installed, refine):
    plugins = installed()
    plan = compiled(NET, data={"x": np.zeros((1, 4, 8, 8), np.float32)}, plugins=plugins).plan
    with pytest.raises(DovetailError, match="holds no batch|no sample|empty"):
        compiled(NET, data=[], plan=plan, plugins=plugins, refine=refine)


@pytest.mark.slow
def test_a_generator_is_read_once(compiled, pictures):
    reads = []

    def batches():
        for sample in pictures["x"]:
            reads.append(1)
            yield {"x": sample[None]}

    streamed = compiled(NET, INT4, data=batches(), refine="rounding,bias")
    assert len(reads) == len(pictures["x"])
    kept = compiled(NET, INT4, data=[{"x": sample[None]} for sample in pictures["x"]], refine="rounding,bias")
    same = [{name: value.const_value.numpy().tobytes() for name, value in one.model.graph.initializers.items()}
            for one in (streamed, kept)]  # fmt: skip
    assert same[0] == same[1]


SHAPES = [
    ("Conv", {}, (2, 4, 9, 7), (6, 4, 3, 2)),
    ("Conv", {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1]}, (2, 4, 9, 7), (6, 2, 3, 2)),
    ("Conv", {"group": 4, "dilations": [2, 1]}, (2, 4, 9, 7), (8, 1, 3, 2)),
    ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (2, 4, 9, 8), (5, 4, 3, 2)),
    ("Conv", {"auto_pad": "SAME_LOWER"}, (2, 4, 9, 8), (5, 4, 2, 4)),
    ("Conv", {"auto_pad": "VALID"}, (2, 4, 9, 8), (5, 4, 2, 4)),
    ("Conv", {"strides": [2]}, (3, 4, 11), (5, 4, 3)),
    ("Conv", {}, (2, 3, 4, 5, 6), (5, 3, 2, 2, 2)),
    ("ConvTranspose", {}, (2, 4, 5, 4), (4, 3, 3, 2)),
    ("ConvTranspose", {"group": 2, "strides": [2, 3], "pads": [1, 0, 0, 1]}, (2, 4, 5, 4), (4, 3, 3, 2)),
    ("ConvTranspose", {"strides": [2, 2], "output_padding": [1, 1], "dilations": [1, 2]}, (2, 4, 5, 4), (4, 3, 3, 3)),
    ("ConvTranspose", {"strides": [2, 2], "output_shape": [11, 8]}, (1, 4, 5, 4), (4, 3, 3, 3)),
    ("ConvTranspose", {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, (1, 4, 5, 4), (4, 3, 3, 3)),
    ("ConvTranspose", {"strides": [2, 2], "auto_pad": "SAME_LOWER"}, (1, 4, 5, 4), (4, 3, 3, 3)),
    ("Gemm", {}, (7, 5), (5, 3)),
    ("Gemm", {"transB": 1}, (7, 5), (3, 5)),
    ("MatMul", {}, (2, 3, 5), (5, 4)),
]


@pytest.mark.parametrize(("operator", "attributes", "given", "weight"), SHAPES)
def test_rows_of_inputs_times_the_weight_are_the_results(operator, attributes, given, weight):
    import onnx
    import onnxruntime

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (given, weight))
    node = onnx.helper.make_node(operator, ["x", "w"], ["y"], name="n", **attributes)
    infos = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", given), ("y", None))]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:], [onnx.numpy_helper.from_array(w, "w")])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    (y,) = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )
    layer = layer_of(next(iter(ir.from_proto(proto).graph)))
    positions = rng.permutation(positions_of(layer, y))[:40]
    rows, results = inputs_at(layer, x, y, positions), outputs_at(layer, y, positions)
    groups, outputs, _ = layer.layout.extents
    matrices = layer.layout.matrices(w).reshape(groups, outputs, -1)
    assert np.allclose(np.einsum("pgk,gok->pgo", rows, matrices), results, atol=1e-4)
    assert np.array_equal(layer.layout.weight(layer.layout.matrices(w)), w)


@pytest.mark.parametrize("groups", [1, 3])
def test_descent_finds_what_trying_everything_finds(groups):
    """Nearly: no element could be changed alone, and rounding to nearest is worse."""
    rng = np.random.default_rng(1)
    inputs, outputs, count = 6, 4, 4000
    mixed = rng.standard_normal((groups, inputs, inputs))
    rows = (mixed @ rng.standard_normal((groups, inputs, count))).astype(np.float32)
    exact = rng.uniform(-4, 4, (groups, inputs, outputs)).astype(np.float32)
    down, up = np.floor(exact) - exact, np.ceil(exact) - exact
    chosen = choose(rows, np.zeros((groups, count, outputs), np.float32), down, up)

    def error(chosen):
        return ((rows.swapaxes(1, 2) @ np.where(chosen, up, down)) ** 2).sum(axis=(0, 1))

    found, nearest = error(chosen), error(np.abs(up) < np.abs(down))
    assert (found <= nearest * 1.001).all()
    every = np.array([[(number >> bit) & 1 for bit in range(inputs)] for number in range(2**inputs)], bool)
    if groups == 1:
        best = np.min([error(np.broadcast_to(one[None, :, None], down.shape)) for one in every], axis=0)
        assert (found <= best * 2).all()
        assert found.sum() < 0.5 * nearest.sum()


def test_with_hardly_any_rows_descent_rounds_to_the_nearest():
    rng = np.random.default_rng(1)
    exact = rng.uniform(-4, 4, (1, 500, 8)).astype(np.float32)
    rows, missing = rng.standard_normal((1, 500, 2)).astype(np.float32), np.zeros((1, 2, 8), np.float32)
    down, up = np.floor(exact) - exact, np.ceil(exact) - exact
    assert (choose(rows, missing, down, up) == (np.abs(up) < np.abs(down))).mean() > 0.97


def test_a_layer_with_more_inputs_than_fit_at_once():
    rng = np.random.default_rng(3)
    inputs, count = 5000, 300
    rows = rng.standard_normal((1, 20, count)).astype(np.float32)
    rows = rng.standard_normal((1, inputs, 20)).astype(np.float32) @ rows
    exact = rng.uniform(-4, 4, (1, inputs, 3)).astype(np.float32)
    down, up = np.floor(exact) - exact, np.ceil(exact) - exact
    chosen = choose(rows, np.zeros((1, count, 3), np.float32), down, up)

    def error(chosen):
        return float(((rows.swapaxes(1, 2) @ np.where(chosen, up, down)) ** 2).sum())

    assert error(chosen) < 0.5 * error(np.abs(up) < np.abs(down))


def test_a_sample_has_the_same_size_and_rows_however_the_data_comes():
    data = np.arange(10_000)
    whole, parts = RowSample(100, seed=5), RowSample(100, seed=5)
    whole.offer(len(data), lambda at: (data[at],))
    for start in range(0, len(data), 37):
        part = data[start : start + 37]
        parts.offer(len(part), lambda at, part=part: (part[at],))
    assert len(whole) == len(parts) == 100
    assert np.array_equal(np.sort(whole.rows[0]), np.sort(parts.rows[0]))
    assert math.isclose(whole.rows[0].mean(), 5000, rel_tol=0.2)


@pytest.mark.parametrize("room", [0, 3 * 4 * 8, 1 << 20], ids=["files", "both", "memory"])
def test_values_between_blocks_are_in_memory_and_in_files(room, monkeypatch):
    monkeypatch.setattr(activation_cache, "_ROOM", room)
    cache, array = activation_cache.ActivationCache(), np.zeros(8, np.float32)
    with cache.writing() as write:
        for number in range(5):
            array[:] = number  # a stream may reuse its memory
            write({"a": array, "b": [array]})
    within = activation_cache.ActivationCache(cache)
    reading = within.read(["a", "b"], 5)
    first = next(reading)
    cache.change("a", lambda value: value + 1, 5)
    assert [first["a"][0], *(values["a"][0] for values in reading)] == [0, 1, 2, 3, 4], (
        "readers keep what they began with"
    )
    assert [values["a"][0] for values in within.read(["a"], 5)] == [1, 2, 3, 4, 5]
    cache.drop("a")
    cache.drop("b")
    assert cache._room.left == room


def test_a_layer_and_what_reads_it_are_in_different_blocks(pictures):
    model = with_weights(NET)
    nodes = list(model.graph)
    refined = [node for node in nodes if node.op_type == "Conv"]
    names = [[node.name for node in block] for block in blocks_of(nodes, refined)]
    assert names == [["first"], ["relu", "depthwise"], ["pointwise"]]


def test_the_number_of_blocks_does_not_grow_with_the_model():
    values = [ir.Value(name=f"v{i}") for i in range(20_001)]
    nodes = [ir.node("Relu", [values[i]], outputs=[values[i + 1]]) for i in range(20_000)]
    blocks = blocks_of(nodes, nodes)
    assert len(blocks) <= 256
    assert [node for block in blocks for node in block] == nodes
