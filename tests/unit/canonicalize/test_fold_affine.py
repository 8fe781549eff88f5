"""Folded or not, the model computes the same."""

import itertools

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.passes import Context, Pipeline
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_model
from dovetail_onnx.saving import save_model
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

# By name: the product, the shape of x, of its weight, and of its bias if it takes one.
PRODUCTS = {
    "Conv": ("Conv (h, w{b})", (1, 4, 6, 6), (8, 4, 3, 3), (8,)),
    "grouped Conv": ("Conv <group = 2> (h, w{b})", (1, 4, 6, 6), (8, 2, 3, 3), (8,)),
    "padded Conv": ("Conv <pads = [1, 1, 1, 1]> (h, w{b})", (1, 4, 6, 6), (8, 4, 3, 3), (8,)),
    "ConvTranspose": ("ConvTranspose (h, w{b})", (1, 4, 6, 6), (4, 8, 3, 3), (8,)),
    "Gemm": ("Gemm (h, w{b})", (3, 4), (4, 8), (8,)),
    "transposed Gemm": ("Gemm <transB = 1, alpha = 0.5> (h, w{b})", (3, 4), (8, 4), (1, 8)),
    "Gemm of transposed input": ("Gemm <transA = 1> (h, w{b})", (4, 3), (4, 8), (8,)),
    "MatMul": ("MatMul (h, w)", (2, 3, 4), (4, 8), None),
}
SCALAR, CHANNEL = "scalar", "channel"


def model(product, bias, before, behind):
    """A scale before a product, and a scale and a shift behind it; constants are numbers, or one per channel."""
    text, x, weight, bias_shape = PRODUCTS[product]
    bias = bias and bias_shape is not None
    spatial = (1,) * (len(x) - 2) if "Conv" in product else ()

    def shape(kind, channels):
        return () if kind == SCALAR else (channels, *spatial)

    # What Gemm reads transposed has its channels on another axis, where one number per channel does not scale them.
    channels = {"k": shape(before, x[-1] if product == "Gemm of transposed input" else 4), "d": shape(behind, 8)}
    generator = np.random.default_rng(0)
    arrays = {
        "w": generator.standard_normal(weight),
        "b": generator.standard_normal(bias_shape or ()),
        "k": generator.uniform(0.5, 2, channels["k"]),
        "d": generator.uniform(-2, -0.5, channels["d"]),
        "c": generator.standard_normal(channels["d"]),
    }
    given, made = ",".join(map(str, x)), ",".join("NCHW"[: len(x)])
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 22]> g (float[{given}] x) => (float[{made}] y) {{
          [before] h = Mul (x, k)  [product] p = {text.format(b=", b" if bias else "")}
          [scale] s = Div (p, d)  [shift] y = Sub (s, c) }}"""
    )
    for name, array in arrays.items():
        if name != "b" or bias:
            proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    return proto, x


@pytest.mark.generated
@pytest.mark.parametrize(
    ("product", "bias", "before", "behind"),
    list(itertools.product(PRODUCTS, [True, False], [SCALAR, CHANNEL], [SCALAR, CHANNEL])),
)
def test_the_result_is_the_same(tmp_path, product, bias, before, behind):
    proto, shape = model(product, bias, before, behind)
    source, target = tmp_path / "m.onnx", tmp_path / "folded.onnx"
    source.write_bytes(proto.SerializeToString())
    plugins = load_plugins()
    opened = open_model(source)
    Pipeline.parse("normalize,fold-affine,dead-code", plugins.registry).run(opened, Context(plugins=plugins))
    save_model(opened, target)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    (expected,), (result,) = (ReferenceEvaluator(str(path)).run(None, {"x": x}) for path in (source, target))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    # What stands before the product stays; MatMul has no bias.
    shifted = ["Sub"] if product == "MatMul" else []
    assert [node.op_type for node in onnx.load(target).graph.node] == ["Mul", text_of(product), *shifted]


def text_of(product):
    """The operator of a product."""
    return PRODUCTS[product][0].split()[0]


def test_weights_that_were_folded_are_not_in_the_result():
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[1,2,4,4] x) => (float[1,2,4,4] y)
        <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] b = {1, 2}, float[2,1,1] d = {2, 3}, float[2,1,1] e = {1, 1}>
        { c = Conv(x, w, b) m = Mul(c, d) y = Add(m, e) }"""
    compiled = dovetail.compile(onnx.parser.parse_model(text), "host", verify=False)
    graph = compiled.model.graph
    assert [node.op_type for node in graph] == ["Conv"]
    read = {value.name for node in graph for value in node.inputs}
    assert graph.initializers.keys() == read - {"x"}
