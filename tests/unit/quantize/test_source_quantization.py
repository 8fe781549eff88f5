"""A source model that is quantized already: its scales are adopted, and its conversions are not doubled."""

import numpy as np
import onnxruntime
import pytest

# Weights, bias and activations in int8, symmetric, as `npu` holds them; one weight has a single scale.
QUANTIZED = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,4,4,4] y)
<float sx = {0.03}, float sa = {0.02}, float sp = {0.05}, int8 z = {0},
 float[4] sw = {0.01, 0.02, 0.01, 0.02}, float s1 = {0.01}, float[4] sb = {0.0003, 0.0006, 0.0003, 0.0006},
 int8[4,4,3,3] w1, int32[4] b1, int8[4,4,1,1] w2> {
  [wd1] fw1 = DequantizeLinear <axis = 0> (w1, sw)
  [bd1] fb1 = DequantizeLinear <axis = 0> (b1, sb)
  [wd2] fw2 = DequantizeLinear (w2, s1)
  [qx] ix = QuantizeLinear (x, sx, z)
  [dx] fx = DequantizeLinear (ix, sx, z)
  [conv1] a = Conv <pads = [1,1,1,1]> (fx, fw1, fb1)
  [qa] ia = QuantizeLinear (a, sa, z)
  [da] fa = DequantizeLinear (ia, sa, z)
  [pool] p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (fa)
  [qp] ip = QuantizeLinear (p, SCALE, z)
  [dp] fp = DequantizeLinear (ip, SCALE, z)
  [conv2] c = Conv (fp, fw2)
  [qc] ic = QuantizeLinear (c, sp, z)
  [dc] fc = DequantizeLinear (ic, sp, z)
  [out] y = Tanh (fc)
}"""


def with_integers(text, pool_scale="sa"):
    """The model with random integers for weights and bias."""
    import dovetail
    import onnx

    rng = np.random.default_rng(3)
    proto = onnx.parser.parse_model(text.replace("SCALE", pool_scale))
    for value in list(proto.graph.value_info):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        array = rng.integers(-100, 100, shape).astype(kind)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        proto.graph.value_info.remove(value)
    return proto, dovetail.open(proto)


def operators(result):
    return [node.op_type for node in result.model.graph]


def expected(proto, x):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact on CPUs without VNNI, too
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})[0]


def test_the_scales_of_a_quantized_model_are_adopted_without_data_and_nothing_is_added(compiled, samples):
    proto, model = with_integers(QUANTIZED)
    result = compiled(model, data=None)

    assert {entry["source"] for entries in result.plan.values.values() for entry in entries} == {"source model"}
    assert operators(result).count("QuantizeLinear") == 4
    assert operators(result).count("DequantizeLinear") == 7
    assert [(join.value, join.kind) for join in result.plan.joins] == [("c", "dequantize")], "as the source has it"
    np.testing.assert_array_equal(result.run({"x": samples["x"][:1]})["y"], expected(proto, samples["x"][:1]))


def test_its_conversions_are_on_the_backend_whose_integers_they_have(compiled):
    _, model = with_integers(QUANTIZED)
    result = compiled(model, data=None)

    assert {node.name for node in result.plan.nodes if node.backend == "host"} == {"out"}
    (region,) = [region for region in result.regions if region.backend == "npu"]
    assert region.nodes[0].endswith("_dequantize") and "x_dequantize" in region.nodes, "integers cross the border"
    assert not {"qx", "dx", "qc", "dc"} & {node.name for node in result.model.graph}, "its own are lifted"
    assert any(remark.rule == "source-scales" for remark in result.remarks)


def test_a_weight_with_one_scale_serves_a_format_with_one_per_channel(compiled):
    _, model = with_integers(QUANTIZED)
    (held,) = compiled(model, data=None).plan.values["fw2"]
    assert held["format"] == "int8[symmetric,axis=0]"
    assert held["scale"] == [pytest.approx(0.01)] * 4


def test_two_scales_at_ports_that_share_one_are_separated_by_a_requantization(compiled, samples):
    """Pooling of the backend moves integers, and the source model quantizes its result anew."""
    proto, model = with_integers(QUANTIZED, pool_scale="sp")
    result = compiled(model, data=None)

    read, pooled = result.plan.values["p"]
    assert pooled["scale"] == pytest.approx(0.02), "that of its input"
    assert read["scale"] == pytest.approx(0.05), "as the source model has it"
    np.testing.assert_array_equal(result.run({"x": samples["x"][:1]})["y"], expected(proto, samples["x"][:1]))


def test_another_reader_of_an_adopted_value_reads_the_same_integers(compiled, samples):
    text = QUANTIZED.replace("Tanh (fc)", "Sum (fc, c)")
    proto, model = with_integers(text)
    result = compiled(model, data=None)
    assert operators(result).count("QuantizeLinear") == 4
    once = expected(with_integers(text.replace("(fc, c)", "(fc)"))[0], samples["x"][:1])
    np.testing.assert_array_equal(result.run({"x": samples["x"][:1]})["y"], 2 * once)


def test_a_model_in_another_scheme_gets_the_range_that_it_had(compiled, samples):
    text = QUANTIZED.replace("int8 z = {0}", "uint8 z = {100}")
    proto, model = with_integers(text)
    result = compiled(model, data=None)

    (held,) = result.plan.values["fx"]
    assert held["source"] == "range of the source model"
    assert held["scale"] == pytest.approx(155 * 0.03 / 127)
    remarks = [remark for remark in result.remarks if remark.rule == "other-scheme"]
    assert remarks, "both conversions are carried out, and a remark says so"
    assert "before it was quantized" in remarks[0].suggest
    difference = result.run({"x": samples["x"][:1]})["y"] - expected(proto, samples["x"][:1])
    assert np.abs(difference).max() < 0.2


def test_weights_in_other_integers_are_stored_anew(compiled, samples):
    text = QUANTIZED.replace("int8[4,4,1,1] w2", "int16[4,4,1,1] w2")
    proto, model = with_integers(text)
    result = compiled(model, data=None)

    (held,) = result.plan.values["fw2"]
    assert held["source"] == "weights"
    assert "wd2" not in {node.name for node in result.model.graph}, "nothing reads the old one"
    difference = result.run({"x": samples["x"][:1]})["y"] - expected(proto, samples["x"][:1])
    assert np.abs(difference).max() < 0.2


def test_a_plan_of_a_quantized_model_replays(compiled, tmp_path):
    _, model = with_integers(QUANTIZED)
    result = compiled(model, data=None)
    result.plan.save(tmp_path / "plan.yaml")
    again = compiled(with_integers(QUANTIZED)[1], data=None, plan=tmp_path / "plan.yaml")
    assert operators(again) == operators(result)
    assert again.plan.values == result.plan.values
