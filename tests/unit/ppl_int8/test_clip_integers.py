"""Activations on integers: the same numbers, bit for bit, wherever both sides have one scale."""

import dovetail
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from dovetail.plugin import load_plugins
from onnx import numpy_helper

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,12,12] x) => (float[1,4,12,12] y)
  <float[4,3,3,3] w1, float[4] b1, float[4,4,3,3] w2, float[4] b2, LIMITS> {
  [conv1] a = Conv <pads = [1,1,1,1]> (x, w1, b1)
  [activation] r = ACTIVATION
  [conv2] y = Conv <pads = [1,1,1,1]> (r, w2, b2)
}"""
LIMITS = "float low = {-0.25}, float high = {0.9}"
RELU, CLIP = "Relu (a)", "Clip (a, low, high)"


def compiled(activation, changes=(), without_pass=False, limits=LIMITS):
    """The net with an activation between two convolutions, compiled with data, and an input for it."""
    text = NET.replace("ACTIVATION", activation).replace("LIMITS", limits)
    for before, after in changes:
        text = text.replace(before, after)
    proto, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    for value in list(proto.graph.value_info):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        proto.graph.initializer.append(
            numpy_helper.from_array((rng.standard_normal(shape) * 0.3).astype(np.float32), value.name)
        )
        proto.graph.value_info.remove(value)
    shapes = {given.name: [dim.dim_value for dim in given.type.tensor_type.shape.dim] for given in proto.graph.input}
    samples = [
        {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(4)
    ]
    plugins = load_plugins()
    if without_pass:
        plugins.registry.pass_.drop("clip-integers")
    return dovetail.compile(proto, "ppl-int8", data=samples, plugins=plugins), {"x": samples[0]["x"] * 3}


def operators(result):
    return [node.op_type for node in result.model.graph]


def exactly(result, inputs, tmp_path):
    """Its outputs with every node computed as it is written."""
    result.model.save(tmp_path / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(tmp_path / "model.onnx", options).run(None, inputs)


def same(first, second, inputs, tmp_path):
    """Whether two results give the same bits."""
    return all(map(np.array_equal, exactly(first, inputs, tmp_path), exactly(second, inputs, tmp_path)))


@pytest.mark.generated
@pytest.mark.parametrize(
    "activation",
    [RELU, CLIP, "Clip (a, low)", "Clip (a, , high)", "Clip (a)"],
    ids=["relu", "clip", "low", "high", "no"],
)
def test_it_computes_the_same_integers(activation, tmp_path):
    (clipped, inputs), (as_written, _) = compiled(activation), compiled(activation, without_pass=True)
    assert operators(clipped).count("QuantizeLinear") == operators(as_written).count("QuantizeLinear")
    (node,) = (node for node in clipped.model.graph if node.name == "activation")
    assert node.op_type == "Clip" and node.outputs[0].dtype.name == "UINT8"
    assert same(clipped, as_written, inputs, tmp_path)


def test_an_activation_of_a_value_that_others_read_too(tmp_path):
    """The value is then held itself, with the scale that the activation shares."""
    both = [("float[1,4,12,12] y)", "float[1,4,12,12] y, float[1,4,12,12] z)"),
            ("(r, w2, b2)", "(r, w2, b2)\n  [conv3] z = Conv <pads = [1,1,1,1]> (a, w2, b2)")]  # fmt: skip
    (clipped, inputs), (as_written, _) = compiled(RELU, both), compiled(RELU, both, without_pass=True)
    assert operators(clipped).count("QuantizeLinear") == operators(as_written).count("QuantizeLinear") - 1
    assert same(clipped, as_written, inputs, tmp_path)


def test_a_result_that_the_model_returns_too(tmp_path):
    shown = [("float[1,4,12,12] y)", "float[1,4,12,12] y, float[1,4,12,12] r)")]
    (clipped, inputs), (as_written, _) = compiled(RELU, shown), compiled(RELU, shown, without_pass=True)
    assert same(clipped, as_written, inputs, tmp_path)


def test_a_bound_that_is_no_constant_stays_in_floats():
    result, _ = compiled(CLIP, [("x) =>", "x, float high) =>")], limits="float low = {-0.25}")
    (node,) = (node for node in result.model.graph if node.name == "activation")
    assert node.outputs[0].dtype.name == "FLOAT"


def test_it_has_a_remark_and_keeps_its_place_and_name():
    result, _ = compiled(RELU)
    assert "activation" in {node.name for node in result.plan.nodes if node.backend == "ppl-int8"}
    assert [remark.node for remark in result.plan.remarks if remark.rule == "clipped-in-integers"] == ["activation"]
