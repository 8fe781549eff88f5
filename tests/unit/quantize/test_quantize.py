"""What a plan holds in integers, and what becomes of it in the graph."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError

from .conftest import NET, with_weights


def nodes_of(compiled, *operators):
    return [node for node in compiled.model.graph if node.op_type in operators]


def placed(compiled, *operators):
    from dovetail.planning import get_placement

    return {node.name: get_placement(node).backend for node in nodes_of(compiled, *operators)}


def quantized_values(compiled, value):
    return compiled.plan.values[value]


def test_a_net_computes_in_integers_and_the_plan_says_how(compiled, samples):
    result = compiled(verify=True)
    assert result.summary().startswith("npu 6/7 nodes in 1 region, host 1; 2 conversions; SNR 3")
    (x,) = quantized_values(result, "x")
    assert x == {
        "format": "int8[symmetric]", "group": "x", "source": "minmax of 6 batches", "readers": ["conv1:X"],
        "scale": pytest.approx(float(np.abs(samples["x"]).max()) / 127), "zero_point": 0,
    }  # fmt: skip
    (w1,) = quantized_values(result, "w1")
    assert w1 == {"format": "int8[symmetric,axis=0]", "group": "w1", "source": "weights", "readers": ["conv1:W"]}
    (b1,) = quantized_values(result, "b1")
    assert (b1["source"], len(b1["scale"])) == ("X*W of conv1", 4)


def test_each_value_is_converted_once_per_quantized_value(compiled):
    """`c` has two readers and one QuantizeLinear; `p` is read by conv2 and add."""
    result = compiled()
    quantized = [node.inputs[0].name for node in nodes_of(result, "QuantizeLinear")]
    assert sorted(quantized) == ["a", "c", "d", "p", "r", "s", "x"]
    assert len(nodes_of(result, "DequantizeLinear")) == 7 + 4  # and one per weight


def test_weights_are_stored_in_integers_and_biases_with_the_scale_of_the_product(compiled):
    result = compiled()
    stored = {name: value.const_value for name, value in result.model.graph.initializers.items()}
    assert stored["w1_int8"].dtype.name == "INT8"
    assert stored["b1_int32"].dtype.name == "INT32"
    assert "w1" not in stored
    source = with_weights(NET).graph.initializers["w1"].const_value.numpy()
    real = stored["w1_int8"].numpy() * stored["w1_scale"].numpy().reshape(-1, 1, 1, 1)
    assert np.abs(real - source).max() <= stored["w1_scale"].numpy().max() / 2 * 1.0001


BORDERS = [
    ("", {"x_quantize": "host", "x_dequantize": "npu", "d_quantize": "npu", "d_dequantize": "host"}),
    ("border: {in: inside, out: outside}", {"x_quantize": "npu", "d_dequantize": "host"}),
    ("border: {in: outside, out: inside}", {"x_quantize": "host", "d_dequantize": "npu"}),
]


@pytest.mark.parametrize(("border", "expected"), BORDERS)
def test_integers_or_floats_cross_the_border_as_the_file_says(compiled, border, expected):
    result = compiled(NET, ("place:", f"{border}\nplace:"))
    found = placed(result, "QuantizeLinear", "DequantizeLinear")
    assert {name: found[name] for name in expected} == expected


def test_ports_that_share_a_scale_have_one(compiled):
    """Concat and pooling move integers; what they read and give has the range of all of it."""
    values = compiled().plan.values
    assert values["s"][0]["scale"] == values["c"][0]["scale"] == values["d"][0]["scale"]
    assert values["s"][0]["group"] == values["c"][0]["group"] == values["d"][0]["group"]
    assert values["r"][0]["scale"] == values["p"][0]["scale"]
    assert values["a"][0]["group"] == "a"


@pytest.mark.parametrize(
    ("mode", "decides", "part"),
    [
        ("true", "a", 1),  # an average is never larger than what it is made of
        ("input", "a", 1),
        ("output", "p", 1),
        ("consumer", "p", 0.5),  # mul has an observer that covers half
    ],
)
def test_a_shared_scale_comes_from_where_the_file_says(compiled, samples, mode, decides, part):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,4,4] y) <float[4,4,3,3] w> {
      [conv] a = Conv <pads = [1,1,1,1]> (x, w)
      [pool] p = AveragePool <kernel_shape = [2,2], strides = [2,2]> (a)
      [mul] y = Mul (p, p)
    }"""
    moved = ("MaxPool: {role: passive, types: q8, same_scale: true}",
             f"AveragePool: {{role: passive, types: q8, same_scale: {mode}}}")  # fmt: skip
    result = compiled(text, moved, verify=True)
    seen = dovetail.open(with_weights(text))
    seen.graph.outputs.extend(node.outputs[0] for node in list(seen.graph)[:2])
    floats = dovetail.compile(seen, "host")
    largest = max(np.abs(floats.run({"x": sample[None]})[decides]).max() for sample in samples["x"])
    (before,) = quantized_values(result, "a")
    (after,) = (found for found in quantized_values(result, "p") if found["group"] == before["group"])
    assert before["scale"] == after["scale"] == pytest.approx(part * largest / 127)
    assert len(quantized_values(result, "p")) == (1 if mode == "consumer" else 2)


def test_a_chain_takes_the_scale_of_what_ends_it(compiled):
    """Where every node follows its reader, the last one decides; where nobody reads in integers, the result does."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) {
      [one] a = Relu (x) [two] b = Relu (a) [mul] m = Mul (b, b) [three] c = Relu (m) [four] y = Relu (c) }"""
    follows = ("Relu: {role: passive, types: q8}", "Relu: {role: passive, types: q8, same_scale: consumer}")
    values = compiled(text, follows).plan.values
    half = next(found for found in values["b"] if found["readers"] == ["mul:A", "mul:B"])
    assert {values["x"][0]["scale"], values["a"][0]["scale"]} == {half["scale"]}
    assert values["m"][0]["scale"] == values["c"][0]["scale"] == values["y"][0]["scale"]
    assert values["m"][0]["source"] == "minmax of 8 batches"


def test_two_scales_for_one_value_are_two_quantized_values_with_a_requantization_between(compiled, samples):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) { [relu] r = Relu (x) [mul] m = Mul (r, r) [add] y = Add (m, r) }"""
    result = compiled(text, verify=True)
    plain, half = quantized_values(result, "r")
    assert plain["scale"] == pytest.approx(2 * half["scale"])
    assert (plain["readers"], half["readers"]) == (["add:B"], ["mul:A", "mul:B"])
    second = next(
        node
        for node in nodes_of(result, "QuantizeLinear")
        if node.outputs[0] is not None
        and node.inputs[0].producer() is not None
        and node.inputs[0].producer().op_type == "DequantizeLinear"
    )
    assert second.inputs[1].const_value.numpy() == np.float32(half["scale"])
    said = [remark.why for remark in result.remarks if remark.rule == "requantized"]
    assert said == [f"'r' is requantized to int8[symmetric], scale {half['scale']:.6g} (half of 6 batches)"]
    joins = [(join.value, join.kind, join.at) for join in result.plan.joins]
    assert joins == [("x", "quantize", "relu"), ("r", "requantize", "mul"), ("y", "dequantize", "y")]
    assert "3 conversions" in result.summary()


def test_a_value_quantized_with_two_scales_is_two_joins(compiled):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) { [mul] m = Mul (x, x) [add] y = Add (m, x) }"""
    assert [join.kind for join in compiled(text).plan.joins] == ["quantize", "quantize", "dequantize"]


FUSED = ("Conv: {role: active, types: {X: q8, W: w8, B: b32, Y: q8}}",
         "Conv: {role: active, types: {X: q8, W: w8, B: b32, Y: q8}, fuses: [Relu, Clip]}")  # fmt: skip


def test_a_value_between_a_product_and_the_activation_computed_with_it_is_not_held(compiled, samples):
    result = compiled(NET, FUSED, verify=True)
    relu = next(iter(nodes_of(result, "Relu")))
    assert relu.inputs[0].producer().op_type == "Conv", "nothing stands between them"
    between, after = quantized_values(result, "a")[0], quantized_values(result, "r")[0]
    assert (between["group"], between["scale"]) == (after["group"], after["scale"]), "of the result, not of its input"
    assert between["source"] == "computed together with relu"
    assert len(nodes_of(result, "QuantizeLinear")) == len(nodes_of(compiled(), "QuantizeLinear")) - 1


def test_a_value_with_a_second_reader_is_held_all_the_same(compiled):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,3,3] w> {
      [conv] a = Conv <pads = [1,1,1,1]> (x, w) [relu] r = Relu (a) [add] y = Add (a, r) }"""
    result = compiled(text, FUSED)
    assert quantized_values(result, "a")[0]["source"] == "minmax of 8 batches"
    assert next(iter(nodes_of(result, "Relu"))).inputs[0].producer().op_type == "DequantizeLinear"


def test_operands_may_be_aligned_while_the_result_has_a_scale_of_its_own(compiled):
    aligned = ("Add: {role: active, types: {A: q8, B: q8, C: q8}}",
               "Add: {role: active, types: {A: q8, B: q8, C: q8}, same_scale: [A, B]}")  # fmt: skip
    free = ("Concat: {role: passive, types: {in0: q8, in1: q8, out0: q8}, same_scale: true}", "Tanh: {types: q8}")
    values = compiled(NET.replace("Concat <axis = 1> (s, c)", "Concat <axis = 1> (s, p)"), aligned, free).plan.values
    assert values["p"][0]["scale"] == values["c"][0]["scale"]
    assert values["s"][0]["scale"] != values["p"][0]["scale"]


def test_beside_a_backend_that_computes_in_bfloat16(compiled):
    result = compiled(backends=["npu", "cpu-bf16"], verify=True)
    assert result.summary().startswith("npu 6/7 nodes in 1 region, cpu-bf16 1/7 nodes in 1 region; 2 conversions")


def test_an_output_in_integers_keeps_its_name_and_type(compiled, samples):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] r, float[1,4,8,8] s) { [relu] r = Relu (x) [add] s = Add (r, r) }"""
    result = compiled(text)
    outputs = result.run({"x": samples["x"][:1]})
    assert {name: array.dtype.name for name, array in outputs.items()} == {"r": "float32", "s": "float32"}
    scale = quantized_values(result, "r")[0]["scale"]
    assert np.allclose(np.rint(outputs["r"] / scale), outputs["r"] / scale, atol=1e-3), "it lies on the grid"


def test_the_result_passes_the_checker_and_runs_elsewhere(compiled, samples, tmp_path):
    import onnxruntime

    result = compiled()
    result.save(tmp_path)
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    one = {"x": samples["x"][:1]}
    assert np.allclose(session.run(None, one)[0], result.run(one)["y"], atol=0.05)


def test_a_replay_needs_no_data_and_gives_the_same_bytes(compiled, installed, tmp_path):
    plugins = installed()
    first = compiled(plugins=plugins)
    first.save(tmp_path / "first")
    again = compiled(data=None, plan=tmp_path / "first" / "plan.yaml", plugins=plugins)
    assert [entry["source"] for entry in quantized_values(again, "x")] == ["replayed"]
    again.save(tmp_path / "again")
    assert same_but_for_the_request(tmp_path / "first", tmp_path / "again")


def same_but_for_the_request(one, two):
    models = [onnx.load(folder / "model.onnx") for folder in (one, two)]
    for model in models:
        kept = [entry for entry in model.metadata_props if not entry.key.startswith("dovetail.")]
        del model.metadata_props[:]
        model.metadata_props.extend(kept)
    return models[0].SerializeToString(deterministic=True) == models[1].SerializeToString(deterministic=True)


def test_without_data_the_message_names_node_value_and_way_out(compiled):
    with pytest.raises(DovetailError) as caught:
        compiled(data=None)
    text = "npu computes 'conv1' in int8[symmetric], and nothing says in which range 'x' lies; 4 ranges are not known"
    assert caught.value.message == text
    assert "--data" in caught.value.hint


def test_what_stands_in_a_body_is_placed_elsewhere(compiled):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x, bool c) => (float[1,4,8,8] y) {
      [before] a = Relu (x)
      [choice] y = If (c) <
        then_branch = t () => (float[1,4,8,8] t0) { [inner] t0 = Relu (a) },
        else_branch = e () => (float[1,4,8,8] e0) { [other] e0 = Add (a, a) }
      >
    }"""
    data = {"x": np.ones((1, 4, 8, 8), np.float32), "c": np.array(True)}
    result = compiled(text, ("ops:", "ops:\n  If: {types: [q8, float32]}"), data=data, verify=True)
    where = {node.name: node.backend for node in result.plan.nodes}
    assert where == {"before": "npu", "choice": "host", "inner": "host", "other": "host"}
    said = [remark.why for remark in result.remarks if remark.rule == "calibration"]
    assert "numbers in bodies of control flow are not calibrated" in said[0]
    assert dovetail.explain(result, "choice")


TAIL = ("Y: q8}", "Y: [q8, tail]}"), ("  b32:", "  tail: {dtype: int32, scale: X*W, when: {region.last: true}}\n  b32:")
ENDS = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y, float[1,4,8,8] z) <float[4,4,3,3] w1, float[4,4,3,3] w2> {
  [inner] a = Conv <pads = [1,1,1,1]> (x, w1)
  [last] b = Conv <pads = [1,1,1,1]> (a, w2)
  [out] y = Tanh (b)
  [beside] z = Tanh (a)
}"""


def test_an_accumulator_that_leaves_its_region_is_the_float_that_was_computed(compiled):
    result = compiled(ENDS, *TAIL, pins="last=npu/Y:int32[symmetric,axis=1]", verify=True)
    (b,) = quantized_values(result, "b")
    assert (b["format"], b["source"], len(b["scale"])) == ("int32[symmetric,axis=1]", "X*W of last", 4)
    assert [node.inputs[0].name for node in nodes_of(result, "Tanh")] == ["b", "a_float32_1"]


def test_a_pin_to_an_accumulator_inside_of_a_region_is_an_error(compiled):
    with pytest.raises(DovetailError) as caught:
        compiled(ENDS, *TAIL, pins="inner=npu/Y:int32[symmetric,axis=1]")
    assert "Y cannot be int32[symmetric,axis=1], because of what reads it; allowed: int8[symmetric]" in str(
        caught.value
    )
