"""Engines in int8: what is quantized, in which types, and what a source model that is quantized already gives."""

import dovetail
import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import pytest
from dovetail.planning import get_placement
from dovetail_tensorrt.libraries import NoLibrary, library
from dovetail_tensorrt.parser import parse

from tests.e2e.nets import images, net

from .engine_regions import engine_regions, typed


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


@pytest.fixture(scope="module")
def mobilenet(plugins):
    return typed(net("mobilenet"), plugins, "tensorrt:precision=int8", data=images(4))


def conversions(model):
    return [node for node in model.graph if node.op_type in ("QuantizeLinear", "DequantizeLinear")]


def test_conversions_are_symmetric_and_have_float16_scales(mobilenet):
    """The parser computes in the type of the scale what is behind a DequantizeLinear."""
    model, _ = mobilenet
    assert conversions(model)
    for node in conversions(model):
        scale, zero = (value.const_value.numpy() for value in node.inputs[1:])
        assert (scale.dtype, zero.dtype) == (np.float16, np.int8)
        assert (scale > 0).all() and not zero.any()


def test_products_have_int8_inputs_and_float16_biases_and_results(mobilenet):
    model, _ = mobilenet
    convolutions = [node for node in model.graph if node.op_type == "Conv"]
    for node in convolutions:
        data, weight, *bias = node.inputs
        assert data.producer().op_type == weight.producer().op_type == "DequantizeLinear"
        assert weight.producer().attributes.get_int("axis", 1) == 0
        assert {value.dtype.name for value in (data, weight, *bias, *node.outputs)} == {"FLOAT16"}
        assert all(value.producer() is None for value in bias)


def test_floats_cross_the_border(mobilenet):
    """The conversions at the border are the engine's, so that it may place them."""
    (region,) = engine_regions(mobilenet[0])
    border = {value.dtype.name for value in (*region.graph.inputs, *region.graph.outputs)}
    assert border == {"FLOAT"}


def test_the_parser_computes_convolutions_in_float16(mobilenet):
    try:
        parser = library()
    except NoLibrary as error:
        pytest.skip(error.message)
    (region,) = engine_regions(mobilenet[0])
    layers = parse(region, parser).verdict.layers
    assert {layer.types for layer in layers if layer.kind == "CONVOLUTION"} == {("HALF",)}


def test_integers_are_those_of_the_scales_that_the_model_holds(plugins):
    """Scales are rounded up to float16, the smallest subnormal at least; weights are quantized with what is stored."""
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[1,4] x) => (float[1,3] y) { y = MatMul(x, w) }"""
    model = onnx.parser.parse_model(text)
    weight = np.array([[1.0, 1e-9, 0.3]] * 4, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    data = {"x": np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)}
    result, _ = typed(model, plugins, "tensorrt:precision=int8", data=data)
    stored = next(node for node in conversions(result) if node.inputs[0].is_initializer())
    integers, scale = (value.const_value.numpy() for value in stored.inputs[:2])
    np.testing.assert_array_equal(integers, np.clip(np.rint(weight / scale.astype(np.float32)), -127, 127))
    assert scale.astype(np.float32)[0] >= np.float32(1 / 127)


SOURCE = """<ir_version: 10, opset_import: ["": 20]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float s = {{0.1}}, {kind} z = {{{zero}}}>
{{ q = QuantizeLinear(x, s, z)
   d = DequantizeLinear(q, s, z)
   y = Relu(d) }}"""


@pytest.mark.parametrize(
    ("kind", "zero", "backend"),
    [("int8", 0, "tensorrt"), ("uint8", 128, "tensorrt"), ("int8", 3, "host"), ("uint8", 0, "host")],
)
def test_conversions_of_the_source_model(kind, zero, backend, plugins):
    """uint8 with the zero point 128 is int8 with zero; with 0, it would be read as int8; others are refused."""
    model = onnx.parser.parse_model(SOURCE.format(kind=kind, zero=zero))
    result, context = typed(model, plugins)
    placed = {get_placement(node).backend for node in conversions(result)}
    assert placed == {backend}
    if backend == "host":
        reasons = [remark.why for remark in context.remarks if remark.rule == "not-supported"]
        assert any("symmetric = false" in why or "uint8; allowed: int8" in why for why in reasons)


def test_signed_integers_stand_for_the_same_numbers():
    """Also where they saturate."""
    model = onnx.parser.parse_model(SOURCE.format(kind="uint8", zero=128))
    x = np.random.default_rng(0).normal(0, 10, (1, 4, 8, 8)).astype(np.float32)
    result = dovetail.compile(model, "tensorrt:precision=fp32")
    np.testing.assert_array_equal(
        result.run({"x": x})["y"], np.maximum(np.clip(np.rint(x / 0.1), -128, 127) * np.float32(0.1), 0)
    )


def product_of(kind, block=0):
    """A product whose weights a source model has in float8 or in 4 bits, with a scale per channel or block."""
    numbers = np.random.default_rng(0).normal(0, 30 if kind == "FLOAT8E4M3FN" else 3, (16, 8))
    weight = onnx.helper.make_tensor(
        "w", onnx.TensorProto.DataType.Value(kind), (16, 8), _held(numbers, kind), raw=True
    )
    scale = np.random.default_rng(1).uniform(0.01, 0.02, (16 // block, 8) if block else 8).astype(np.float32)
    how = f"axis = 0, block_size = {block}" if block else "axis = 1"
    text = f"""<ir_version: 10, opset_import: ["": 21]> g (float[4,16] x) => (float[4,8] y)
        {{ d = DequantizeLinear <{how}> (w, s) y = MatMul(x, d) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend([weight, onnx.numpy_helper.from_array(scale, "s")])
    return model


def _held(numbers, kind):
    if kind == "FLOAT8E4M3FN":
        return numbers.astype(ml_dtypes.float8_e4m3fn).tobytes()
    low, high = (-8, 7) if kind == "INT4" else (0, 15)
    nibbles = np.clip(np.rint(numbers), low, high).astype(np.int8).ravel() & 0xF
    return (nibbles[0::2] | nibbles[1::2] << 4).astype(np.uint8).tobytes()


@pytest.mark.parametrize(
    ("kind", "block", "backend"),
    [("FLOAT8E4M3FN", 0, "tensorrt"), ("INT4", 0, "tensorrt"), ("INT4", 8, "tensorrt"), ("UINT4", 8, "host")],
)
def test_narrow_weights_of_the_source_model(kind, block, backend, plugins):
    """The parser takes float8e4m3fn and int4, by channel and by block, and no uint4."""
    model = product_of(kind, block)
    result, _ = typed(model, plugins)
    assert {get_placement(node).backend for node in conversions(result)} == {backend}
    x = np.random.default_rng(2).standard_normal((4, 16)).astype(np.float32)
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    found = dovetail.compile(model, "tensorrt", plugins=plugins).run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())
    try:
        parser = library()
    except NoLibrary:
        return
    for region in engine_regions(result):
        assert not parse(region, parser).verdict.errors


def test_activations_in_float8_of_the_source_model_are_in_the_engine(plugins):
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[4,16] x) => (float[4,16] y) <float s = {0.02}>
        { q = QuantizeLinear <output_dtype = 17> (x, s) d = DequantizeLinear(q, s) y = Relu(d) }"""
    result, _ = typed(onnx.parser.parse_model(text), plugins)
    assert {get_placement(node).backend for node in result.graph} == {"tensorrt"}


def test_the_observer_of_a_request_is_that_of_activations():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[4,4] x) => (float[4,4] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    data = {"x": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
    compiled = dovetail.compile(model, "tensorrt:precision=int8,observer=minmax", data=data)
    assert compiled.plan.as_dict()["values"]["x"][0]["group"] == "x@minmax"
