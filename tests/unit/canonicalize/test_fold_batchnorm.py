"""Folded or not, the model computes the same."""

import itertools

import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.passes import Context, Pipeline
from dovetail.planning.placement import origin_of
from dovetail.plugin.loader import load_plugins
from dovetail_onnx.opening import open_model
from dovetail_onnx.saving import save_model
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator


def model(op_type, group, bias, epsilon):
    """A convolution with 4 channels in and 8 out, and a normalisation after it."""
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
