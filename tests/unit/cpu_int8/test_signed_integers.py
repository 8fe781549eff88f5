"""Operands of MatMul in int8: the integers of uint8 with a zero point of 128, less 128."""

import numpy as np
import onnx_ir
import openvino as ov
import pytest
from dovetail_cpu_int8.signed_integers import use_signed_integers

from .nets import compiled, net

ATTENTION = "k = MatMul (x, m) t = Transpose <perm = [0,2,1]> (k) a = MatMul (k, t) s = Softmax (a) y = MatMul (s, k)"


def converted(body, x):
    """How many values of a compiled net are held in int8 and in uint8, behind the change."""
    result = compiled(net(body, x=x))
    model = ov.Core().read_model(onnx_ir.to_proto(result.model.ir).SerializeToString())
    changed = use_signed_integers(model)
    kinds = [
        node.get_output_element_type(0).get_type_name()
        for node in model.get_ordered_ops()
        if node.get_type_name() == "Convert" and node.input_value(0).get_node().get_type_name() == "FakeQuantize"
    ]
    assert changed == kinds.count("i8")
    return kinds.count("i8"), kinds.count("u8")


@pytest.mark.parametrize(
    ("body", "x", "expected"),
    [
        pytest.param(ATTENTION, "1,5,16", (3, 1), id="shares are not negative and stay unsigned"),
        pytest.param("y = MatMul (x, m)", "1,5,16", (1, 0), id="a product with a constant"),
        pytest.param("y = Conv (x, v, b)", "1,4,6,6", (0, 1), id="convolutions take both"),
    ],
)
def test_signed_operands_of_matmul_are_held_in_int8(body, x, expected):
    assert converted(body, x) == expected


def test_the_numbers_are_the_same():
    result = compiled(net(ATTENTION, x="1,5,16"))
    content = onnx_ir.to_proto(result.model.ir).SerializeToString()
    feeds = {"x": np.random.default_rng(3).standard_normal((1, 5, 16)).astype(np.float32)}
    found = []
    for change in (lambda model: 0, use_signed_integers):
        model = ov.Core().read_model(content)
        change(model)
        config = {"LP_TRANSFORMS_MODE": False, "INFERENCE_PRECISION_HINT": "f32"}
        found.append(ov.Core().compile_model(model, "CPU", config)(feeds)[0])
    assert np.abs(found[0] - found[1]).max() <= 1e-5 * np.abs(found[0]).max()
