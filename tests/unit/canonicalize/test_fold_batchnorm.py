"""Folded or not, the model computes the same."""

import itertools

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from dovetail.passes import Context, Pipeline
from dovetail.planning import origin_of
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_model
from dovetail_onnx.saving import save_model
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator


def model(op_type, group, bias, epsilon):
    """A convolution with 4 channels in and 8 out, and a normalization after it."""
    generator = np.random.default_rng(0)
    channels = {"Conv": (8, 4 // group), "ConvTranspose": (4, 8 // group)}[op_type]
    weights = {
        "w": generator.standard_normal((*channels, 3, 3)),
        "b": generator.standard_normal(8),
        "scale": generator.standard_normal(8),
        "shift": generator.standard_normal(8),
        "mean": generator.standard_normal(8),
        "var": generator.uniform(0.01, 4, 8),
    }
    inputs = "x, w, b" if bias else "x, w"
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 22]> g (float[1,4,6,6] x) => (float[N,C,H,W] y) {{
          [conv] c = {op_type} <group = {group}> ({inputs})
          [norm] y = BatchNormalization <epsilon = {epsilon}> (c, scale, shift, mean, var) }}"""
    )
    for name, array in weights.items():
        if bias or name != "b":
            proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return proto


CONCAT = """<ir_version: 10, opset_import: ["": 22]>
g (float[1,4,6,6] x) => (float[N,C,H,W] y{more}) <float[3,4,3,3] w, float[3] b, float[4,5,3,3] v> {{
  [one] p = Conv <pads = [1,1,1,1]> (x, w, b) [two] q = ConvTranspose <pads = [1,1,1,1]{group}> (x, v)
  [join] c = Concat <axis = {axis}> (p, {other}) [norm] y = BatchNormalization <epsilon = 0.01> (c, k, s, m, u)
  {rest} }}"""
BRANCHES = {  # what is written otherwise, and the operators afterwards
    "convolutions": ({}, "Conv ConvTranspose Concat"),
    "an axis from behind": ({"axis": "-3"}, "Conv ConvTranspose Concat"),
    "no convolution in a branch": ({"other": "x"}, "Conv Concat BatchNormalization"),
    "another axis": ({"axis": "2", "other": "p"}, "Conv Concat BatchNormalization"),
    "another reader of a branch": (
        {"rest": "[also] z = Relu (q)", "more": ", float[N,D,H,W] z"},
        "Conv ConvTranspose Concat BatchNormalization Relu",
    ),
    "groups": ({"group": ", group = 2"}, "Conv ConvTranspose Concat BatchNormalization"),
}  # fmt: skip


@pytest.mark.parametrize("case", BRANCHES)
def test_behind_a_concat_of_convolutions(tmp_path, case):
    """Each convolution takes in the channels of its own; otherwise the normalization stays."""
    changes, expected = BRANCHES[case]
    parts = {"axis": "1", "other": "q", "rest": "", "more": "", "group": "", **changes}
    proto = onnx.parser.parse_model(CONCAT.format(**parts))
    channels = 3 if parts["axis"] == "2" else 7 if parts["other"] == "x" else 13 if parts["group"] else 8
    generator = np.random.default_rng(0)
    shapes = {"w": (3, 4, 3, 3), "b": (3,), "v": (4, 5, 3, 3), **dict.fromkeys("ksmu", (channels,))}
    for name, shape in shapes.items():
        array = (generator.uniform(0.1, 2, shape)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    source, target = tmp_path / "m.onnx", tmp_path / "folded.onnx"
    source.write_bytes(proto.SerializeToString())
    plugins = load_plugins()
    opened = open_model(source)
    Pipeline.parse("normalize,fold-batchnorm,dead-code", plugins.registry).run(opened, Context(plugins=plugins))
    assert [node.op_type for node in opened.graph] == expected.split()
    save_model(opened, target)
    x = generator.standard_normal((1, 4, 6, 6)).astype(np.float32)
    (wanted, *_), (result, *_) = (onnxruntime.InferenceSession(path).run(None, {"x": x}) for path in (source, target))
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op_type", "group", "bias", "epsilon"),
    [*itertools.product(["Conv"], [1, 2, 4], [True, False], [0.001, 0.5]), ("ConvTranspose", 1, True, 0.001)],
)
def test_the_result_is_the_same(tmp_path, op_type, group, bias, epsilon):
    source, target = tmp_path / "m.onnx", tmp_path / "folded.onnx"
    source.write_bytes(model(op_type, group, bias, epsilon).SerializeToString())
    plugins = load_plugins()
    opened = open_model(source)
    Pipeline.parse("fold-batchnorm,dead-code", plugins.registry).run(opened, Context(plugins=plugins))
    (node,) = opened.graph
    assert origin_of(node) == ("conv", "norm")
    save_model(opened, target)
    x = np.random.default_rng(1).standard_normal((1, 4, 6, 6)).astype(np.float32)
    (expected,), (result,) = (ReferenceEvaluator(str(path)).run(None, {"x": x}) for path in (source, target))
    assert [node.op_type for node in onnx.load(target).graph.node] == [op_type]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
