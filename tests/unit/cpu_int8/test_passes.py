"""The passes of cpu-int8: biases of MatMul in int32, and a place for the factors of `smooth`."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from .nets import compiled, net, quantized

PRODUCT = "p = MatMul (x, m) y = Add (p, n)"


def operators(result):
    return [node.op_type for node in result.model.graph]


def biases(result):
    """The biases in int32, as floats."""
    found = []
    for node in result.model.graph:
        if node.op_type == "DequantizeLinear" and node.inputs[0].dtype.name == "INT32":
            integers, scale, _ = (value.const_value.numpy() for value in node.inputs)
            found.append(integers * scale)
    return found


def test_the_constant_added_to_a_product_has_the_scale_of_its_sums():
    model = net(PRODUCT, x="1,5,16")
    exact = numpy_helper.to_array(next(one for one in model.graph.initializer if one.name == "n"))
    (held,) = biases(compiled(model))
    assert np.abs(held - exact).max() <= 1e-3 * np.abs(exact).max()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("p = MatMul (x, m) q = Add (p, n) y = Add (q, p)", id="others read the product"),
        pytest.param("y = Add (x, n)", id="there is no product"),
        pytest.param("p = MatMul (x, m) y = Mul (p, n)", id="it is no sum"),
    ],
)
def test_other_constants_stay_floats(body):
    assert biases(compiled(net(body, x="1,5,16"))) == []


def test_a_bias_beyond_32_bits_stays_a_float_with_a_remark():
    model = net(PRODUCT, x="1,5,16")
    for one in model.graph.initializer:
        if one.name == "n":
            one.CopyFrom(numpy_helper.from_array(np.full(16, 1e12, np.float32), "n"))
    result = compiled(model)
    assert biases(result) == []
    assert any("too large for 32 bits" in remark.why for remark in result.remarks)


def uneven(scale):
    """A product behind a normalization that others read, too; `scale` is that of the normalization."""
    text = "a = LayerNormalization <axis = -1> (x, u) p = MatMul (a, m) y = Add (p, a)"
    model = net(text, x="1,64,16")
    model.graph.initializer.append(numpy_helper.from_array(np.array(scale, np.float32), "u"))
    onnx.checker.check_model(model)
    return model


def test_uneven_channels_are_smoothed_beside_the_residual_stream():
    result = compiled(uneven([0.1] * 15 + [20]), refine="smooth")
    (scaled,) = [node for node in result.model.graph if node.op_type == "Mul"]
    assert scaled.inputs[0].name == "a" and scaled.inputs[1].const_value.numpy().std() > 0.1
    assert quantized(result) == {scaled.outputs[0].name}, "the residual stream is not rounded"


def test_a_place_that_is_not_used_is_removed():
    result = compiled(uneven([1] * 16), refine="smooth")
    assert "Mul" not in operators(result) and quantized(result) == {"a"}


def test_without_smooth_there_is_no_place():
    assert "Mul" not in operators(compiled(uneven([0.1] + [1] * 14 + [20]), refine="bias"))


COMPUTED_EXTENT = """zero = Constant <value_ints = [0]> ()  width = Constant <value_ints = [16]> ()
  axes = Constant <value_ints = [0, 1]> ()  many = Constant <value_float = 1000.0> ()
  k = MatMul (x, m)  top = ReduceMax <keepdims = 0> (k)  t = Mul (top, many)  c = Cast <to = 7> (t)
  rows = Unsqueeze (c, zero)  shape = Concat <axis = 0> (rows, width)
  row = ReduceMean <keepdims = 0> (x, axes)  e = Expand (row, shape)  [late] p = MatMul (e, o)  y = Add (p, n)"""


def test_a_layer_does_not_see_batches_in_which_integers_compute_other_extents():
    """As in speech synthesis, where rounding makes a sentence longer."""
    result = compiled(net(COMPUTED_EXTENT, x="1,5,16", y="rows,16"), refine="bias")
    (why,) = [remark.why for remark in result.remarks if remark.rule == "other-extents"]
    assert "of 16 batches it computes other extents than the float model" in why
