"""Branches of a merged decoder as models of their own."""

import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail_decoder.merged import BRANCHES, is_merged, joined
from dovetail_decoder.splitting import branch_of

MERGED = """<ir_version: 10, opset_import: ["" : 21]>
g (int64[N] ids, float[P] past, bool[1] again) => (float[M] logits, float[L] present, float[K] key)
<float[4] table = {1, 2, 3, 4}, float[1] two = {2}> {
    logits, present, key = If <
        then_branch = then () => (float[M] scores, float[L] next, float[0] none) {
            rows = Gather(table, ids)
            logits = Mul(rows, two)
            scores = Add(logits, logits)
            next = Concat<axis = 0>(past, rows)
            none = Constant<value = float[0] {}>() },
        else_branch = else () => (float[M] scores, float[L] same, float[K] rows) {
            rows = Gather(table, ids)
            scores = Mul(rows, two)
            same = Identity(scores) }
    >(again) }"""


@pytest.fixture
def merged():
    return onnx.parser.parse_model(MERGED)


def run(model, feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})))


def test_a_branch_has_the_names_of_the_whole_and_only_what_it_reads(merged):
    assert is_merged(merged)
    first, step = (branch_of(merged, key) for key in BRANCHES)
    assert [value.name for value in first.graph.input] == ["ids"]
    assert [value.name for value in step.graph.input] == ["ids", "past"]
    assert [value.name for value in first.graph.output] == ["logits", "present", "key"]
    # A constant stands for what only the first call gives.
    assert [value.name for value in step.graph.output] == ["logits", "present"]


@pytest.mark.parametrize("again", [False, True])
def test_branches_compute_what_the_whole_computes_and_so_does_what_is_made_of_them(merged, again):
    feeds = {"ids": np.array([2, 0]), "past": np.array([7], np.float32), "again": np.array([again])}
    first, step = (branch_of(merged, key) for key in BRANCHES)
    expected = run(merged, feeds)
    found = run(step if again else first, feeds)
    whole = run(joined(merged, first, step), feeds)
    for name, array in expected.items():
        np.testing.assert_array_equal(whole[name], array)
        if name in found:
            np.testing.assert_array_equal(found[name], array)


def test_weights_that_are_dequantized_stay_in_their_branch(merged):
    """ONNX Runtime does not load a model whose products read dequantized weights of an outer graph."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (int64[N] ids, float[N,32] x) => (float[N,4] logits, float[N,4] present, float[N,4] key) {
        d = DequantizeLinear<axis = 0, block_size = 16>(w, s)
        logits = MatMul(x, d) present = Identity(logits) key = Identity(logits) }"""
    part = onnx.parser.parse_model(text)
    ones = onnx.helper.make_tensor("w", onnx.TensorProto.INT4, [32, 4], np.ones(128, np.int8))
    part.graph.initializer.extend([ones, onnx.numpy_helper.from_array(np.ones((2, 4), np.float32), "s")])
    merged.graph.input.append(part.graph.input[1])
    whole = joined(merged, part, part)
    feeds = {"ids": np.array([1]), "past": np.zeros(1, np.float32), "x": np.ones((1, 32), np.float32)}
    found = run(whole, {**feeds, "again": np.array([True])})
    np.testing.assert_array_equal(found["logits"], np.full((1, 4), 32, np.float32))
    assert not whole.graph.initializer
