"""Activations that PPL computes together with a convolution: nothing between the two is held in integers."""

import dovetail
import numpy as np
import onnx
import pytest

NET = """<ir_version: 8, opset_import: ["": 17]>
  g (float[1,4,6,6] x) => (float[1,4,6,6] y)
  <float[4,4,1,1] w = {W}, float[4] b = {0.1, 0.2, -0.3, 0.4}> {
    [first] a = Conv (x, w, b)
    [activation] r = ACTIVATION
    [last] c = Conv (r, w, b)
    [end] y = END
  }"""
WEIGHT = np.random.default_rng(0).standard_normal(16).round(2)
DATA = [{"x": np.random.default_rng(seed).standard_normal((1, 4, 6, 6)).astype(np.float32)} for seed in range(16)]


def compiled(activation, end="Identity (c)"):
    text = NET.replace("ACTIVATION", activation).replace("END", end)
    return dovetail.compile(onnx.parser.parse_model(text.replace("{W}", f"{{{', '.join(map(str, WEIGHT))}}}")),
                            "ppl-int8", data=DATA)  # fmt: skip


def rounded(result):
    """The values that the result has a QuantizeLinear for."""
    return {node.inputs[0].name for node in result.model.graph if node.op_type == "QuantizeLinear"}


def in_integers(result):
    return {node.name for node in result.plan.nodes if node.backend == "ppl-int8"}


@pytest.mark.parametrize("activation", ["LeakyRelu (a)", "Sigmoid (a)"])
def test_what_a_convolution_hands_to_its_activation_is_not_rounded(activation):
    result = compiled(activation)
    assert {"first", "activation", "last"} <= in_integers(result)
    assert "r" in rounded(result) and "a" not in rounded(result)


def test_what_something_else_reads_too_is_rounded(tmp_path):
    result = compiled("Sigmoid (a)", end="Add (c, a)")
    assert "a" in rounded(result), "Add reads it as well, so it exists"


def test_a_leaky_relu_behind_the_last_convolution_goes_with_it():
    result = compiled("Relu (a)", end="LeakyRelu <alpha = 0.1> (c)")
    assert "end" in in_integers(result) and "c" not in rounded(result)


def test_a_sigmoid_behind_the_last_convolution_stays_in_floats():
    """Its 127 steps would be those of the output."""
    assert "end" not in in_integers(compiled("Relu (a)", end="Sigmoid (c)"))


def test_a_leaky_relu_behind_a_pinned_convolution_stays_with_that():
    text = NET.replace("ACTIVATION", "Relu (a)").replace("END", "LeakyRelu (c)")
    proto = onnx.parser.parse_model(text.replace("{W}", f"{{{', '.join(map(str, WEIGHT))}}}"))
    result = dovetail.compile(proto, "ppl-int8", data=DATA, pins=["last=host"])
    assert "end" not in in_integers(result)


def test_ppl_is_told_no_scale_between_them(tmp_path):
    compiled("LeakyRelu (a)").save(tmp_path / "out")
    text = (tmp_path / "out" / "artifacts" / "ppl-int8" / "model" / "ppl.json").read_text()
    assert '"r"' in text and '"a"' not in text
