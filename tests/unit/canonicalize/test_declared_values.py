"""What a file declares of values between nodes is believed where nothing contradicts it, and corrected elsewhere."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.passes import Pipeline
from onnx import TensorProto as T
from onnx import helper

TEXT = """<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
g (float[N,8] x, bool c) => (float[N,4] y, float[N,4] z)
<float[8,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1, 1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> {
  m = MatMul (x, w)
  r = Relu (m)
  q = com.microsoft.FastGelu (r)
  y = Add (q, m)
  z = If (c) <
    then_branch = t () => (float[N,4] o) { s = Sigmoid (r)  o = Mul (s, r) },
    else_branch = e () => (float[N,4] p) { p = Neg (r) }>
}"""
FALSE = {
    "another rank": ("m", T.FLOAT, ["N", 4, 1]),
    "another extent": ("m", T.FLOAT, ["N", 5]),
    "a number where callers choose": ("m", T.FLOAT, [1, 4]),
    "no elements": ("m", T.FLOAT, [0, 4]),
    "another type": ("m", T.FLOAT16, ["N", 4]),
    "another type behind an operator of ONNX Runtime": ("q", T.INT64, ["N", 4]),
    "another extent behind an operator of ONNX Runtime": ("q", T.FLOAT, ["N", 5]),
    "another rank in a body": ("s", T.FLOAT, [3, 4, 5]),
    "another type in a body": ("s", T.INT8, ["N", 4]),
}
FEEDS = {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32), "c": np.array(True)}


def declaring(name: str, *declared) -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    graph = model.graph.node[-1].attribute[0].g if name == "s" else model.graph
    graph.value_info.append(helper.make_tensor_value_info(name, *declared))
    return model


def corrected(result: dovetail.CompiledModel) -> list[str]:
    return [remark.node for remark in result.plan.remarks if remark.rule == "declared-shape"]


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("backend", ["cpu-bf16", "host"])
@pytest.mark.parametrize("declared", FALSE.values(), ids=FALSE)
def test_what_is_false_is_corrected(declared, backend):
    result = dovetail.compile(declaring(*declared), backend, data=FEEDS)
    plain = dovetail.compile(onnx.parser.parse_model(TEXT), backend, data=FEEDS)
    assert corrected(result) == [declared[0]]
    assert not corrected(plain)
    for name, right in plain.run(FEEDS).items():
        np.testing.assert_array_equal(result.run(FEEDS)[name], right)


def test_a_sequence_that_is_a_tensor_is_corrected():
    model = onnx.parser.parse_model(TEXT)
    model.graph.value_info.append(helper.make_tensor_sequence_value_info("r", T.FLOAT, ["N", 4]))
    assert corrected(dovetail.compile(model, "cpu-bf16")) == ["r"]


TRUE = {
    "what inference finds, too": ("m", T.FLOAT, ["N", 4]),
    "with another name": ("m", T.FLOAT, ["rows", 4]),
    "a value that is not there": ("nowhere", T.FLOAT, ["N", 5]),
}


@pytest.mark.parametrize("declared", TRUE.values(), ids=TRUE)
def test_what_contradicts_nothing_is_not_remarked_on(declared):
    assert not corrected(dovetail.compile(declaring(*declared), "cpu-bf16"))


def test_what_only_the_file_knows_is_believed():
    text = """<ir_version: 10, opset_import: ["": 20, "acme": 1]>
    g (float[2,8] x) => (float[P,Q] y) { a = acme.Kernel (x)  b = Relu (a)  y = Identity (b) }"""
    model = onnx.parser.parse_model(text)
    model.graph.value_info.append(helper.make_tensor_value_info("a", T.FLOAT, [2, 3]))
    opened = dovetail.open(model)
    Pipeline.parse("normalize", dovetail.load_plugins().registry).run(opened)
    relu = next(node for node in opened.graph if node.op_type == "Relu")
    assert list(relu.outputs[0].shape) == [2, 3]
