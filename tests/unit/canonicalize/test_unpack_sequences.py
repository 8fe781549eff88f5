"""Sequences whose members are known are read as tensors: the same numbers, on any backend."""

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest

HEAD = '<ir_version: 9, opset_import: ["": 18]> g (float[2,7] x) => (float y, float z) '
CONSTANTS = (
    "<int64 three = {3}, int64[3] sizes = {1, 4, 2}, int64 first = {0}, int64 second = {1}, int64 last = {-1}, "
    "bool yes = {1}, float[7,7] w = {" + ", ".join(["0.5"] * 49) + "}>"
)
BODIES = {
    "parts of one size and a rest": "s = SplitToSequence <axis = 1> (m, three) y = SequenceAt (s, last) "
    "z = SequenceAt (s, first)",
    "parts of sizes": "s = SplitToSequence <axis = -1> (m, sizes) y = SequenceAt (s, second) z = SequenceAt (s, last)",
    "rows": "s = SplitToSequence <keepdims = 0> (m) y = SequenceAt (s, second) z = SequenceAt (s, first)",
    "rows that keep their axis": "s = SplitToSequence (m) y = SequenceAt (s, second) z = SequenceAt (s, first)",
    "a list that is stacked": "a = Relu (m) s = SequenceConstruct (m, a) y = ConcatFromSequence <axis = 1, "
    "new_axis = 1> (s) z = SequenceAt (s, last)",
    "a list that grows and shrinks": "a = Relu (m) b = Neg (m) e = SequenceEmpty () s = SequenceInsert (e, a) "
    "t = SequenceInsert (s, b, first) u = SequenceInsert (t, m, last) v = SequenceErase (u, second) "
    "y = ConcatFromSequence <axis = 0> (v) z = SequenceAt (u, second)",
    "the length of a list": "s = SplitToSequence <axis = 1> (m, three) n = SequenceLength (s) y = Cast <to = 1> (n) "
    "z = SequenceAt (s, second)",
    "a body that reads the list": "s = SplitToSequence <axis = 1> (m, three) z = SequenceAt (s, second) y = If (yes) "
    "<then_branch = t () => (float p) { a = SequenceAt (s, first) p = Relu (a) }, "
    "else_branch = e () => (float q) { q = SequenceAt (s, first) }>",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_members_are_tensors(body):
    model = onnx.parser.parse_model(f"{HEAD} {CONSTANTS} {{ m = MatMul (x, w) {body} }}")
    x = {"x": np.random.default_rng(0).standard_normal((2, 7)).astype(np.float32)}
    right = onnxruntime.InferenceSession(model.SerializeToString()).run(None, x)
    result = dovetail.compile(model, "cpu-bf16", high=["type:MatMul"], data=x)
    for one, other in zip(right, result.run(x).values(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
    assert not any("Sequence" in node.op_type for node in result.model.nodes())
    assert {node.backend for node in result.plan.nodes} == {"cpu-bf16"}
