"""Arithmetic with constants as PPL computes it in int8: other operators, the same results."""

from collections import Counter

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.passes import BackendChoice, Context, Request
from dovetail.plugin import load_plugins
from onnx import numpy_helper


def model(body, weights="", shape="1,4,6,6"):
    """A net with a convolution in front and random constants."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
      g (float[1,3,6,6] x) => (float[{shape}] y) <float[4,3,1,1] w, float[4] b{weights}> {{
        [conv] a = Conv (x, w, b)
        {body}
      }}"""
    proto, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    for value in list(proto.graph.value_info):
        extents = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = rng.standard_normal(extents).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, value.name))
        proto.graph.value_info.remove(value)
    return proto


def prepared(proto):
    """What the passes before placing make of it."""
    plugins, result = load_plugins(), dovetail.open(proto)
    ctx = Context(Request(backends=(BackendChoice("ppl-int8"),)), plugins=plugins)
    dovetail.Pipeline.parse("normalize,fold-constants,remove-identity,ppl-operators", plugins.registry).run(result, ctx)
    return result


def operators(result):
    return Counter(node.op_type for node in result.graph)


CASES = {
    "sub": ("y = Sub (a, c)", ", float[4,1,1] c", {"Add": 1}),
    "max": ("y = Max (a, c)", ", float[1] c", {"Clip": 1}),
    "max, the other way round": ("y = Max (c, a)", ", float c", {"Clip": 1}),
    "min": ("y = Min (a, c)", ", float[1,1,1,1] c", {"Clip": 1}),
    "scale behind a transpose": ("t = Transpose <perm = [0,2,3,1]> (a)\n y = Mul (t, c)", ", float[4] c", {"Mul": 1}),
    "shift behind a transpose": ("t = Transpose <perm = [3,1,0,2]> (a)\n y = Sub (t, c)", ", float[4,1] c", {"Add": 1}),
    "activation": ("t = Transpose (a)\n y = Relu (t)", "", {"Relu": 1}),
    "bounds": ("t = Transpose (a)\n y = Clip (t, c, d)", ", float c = {-0.5}, float d = {0.5}", {"Clip": 1}),
}
TURNED = {"scale behind a transpose": "1,6,6,4", "shift behind a transpose": "6,4,1,6", "activation": "6,6,4,1",
          "bounds": "6,6,4,1"}  # fmt: skip


@pytest.mark.generated
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_the_same(name):
    body, weights, expected = CASES[name]
    proto = model(body, weights, TURNED.get(name, "1,4,6,6"))
    result = prepared(proto)
    behind = {"Transpose": 1} if name in TURNED else {}
    assert operators(result) == {"Conv": 1, **behind, **expected}
    if behind:
        assert result.graph[-1].op_type == "Transpose", "it stands behind what computes"
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 3, 6, 6)).astype(np.float32)}
    before, after = (dovetail.compile(each, "host").run(inputs)["y"] for each in (proto, result))
    assert np.allclose(before, after, rtol=1e-6, atol=1e-6), "the host folds scales, which rounds once less"


@pytest.mark.parametrize(
    ("body", "weights"),
    [("y = Sub (c, a)", ", float[4,1,1] c"), ("y = Max (a, c)", ", float[4,1,1] c"), ("y = Max (a, a, a)", ""),
     ("y = Sub (a, a)", ""), ("y = Relu (a)", "")],
    ids=["constant first", "by channel", "three", "two values", "nothing to do"],
)  # fmt: skip
def test_what_it_leaves_alone(body, weights):
    proto = model(body, weights)
    assert operators(prepared(proto)) == Counter(node.op_type for node in proto.graph.node)


def test_other_backends_get_the_model_as_it_is():
    plan = dovetail.plan(model("y = Max (a, c)", ", float[1] c"), "cpu-bf16")
    assert [node.op_type for node in plan.nodes] == ["Conv", "Max"]


def test_a_batch_norm_that_is_spelled_out_behind_a_transpose_is_folded():
    """As exporters of channels-last nets write it; the two convolutions are then one region in int8."""
    proto = model(
        """t = Transpose <perm = [0,2,3,1]> (a)
           centered = Sub (t, mean)
           scaled = Mul (centered, scale)
           shifted = Add (scaled, shift)
           r = Relu (shifted)
           u = Transpose <perm = [0,3,1,2]> (r)
           [last] y = Conv (u, v, b)""",
        ", float[4] mean, float[4] scale, float[4] shift, float[4,4,1,1] v",
    )
    data = [{"x": np.random.default_rng(seed).standard_normal((1, 3, 6, 6)).astype(np.float32)} for seed in range(4)]
    result = dovetail.compile(proto, "ppl-int8", data=data)
    in_int8 = {node.op_type for node in result.plan.nodes if node.backend == "ppl-int8"}
    assert in_int8 == {"Conv", "Relu"}
    assert not {"Sub", "Mul", "Add"} & {node.op_type for node in result.model.graph}
    exact = dovetail.compile(proto, "host").run(data[0])["y"]
    noise = result.run(data[0])["y"] - exact
    assert 10 * np.log10((exact**2).sum() / (noise**2).sum()) > 30
