"""Operators with axes between two Transposes, which ONNX Runtime's transpose optimizer moves one over the other.

It reorders lists of axes as if they named all axes, for Pad, Resize and CenterCropPad (1.32).
"""

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.plugin import RegionModel
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu

OPERATORS = {  # with `t`, an image with the channels in front, and inputs p: pads, a: axes, n: numbers
    "Pad": "r = Pad(t, pads, , axes)",
    "Pad with computed pads": "q = Add(p, p) r = Pad(t, q, , axes)",
    "Pad with the last axes": 'r = Pad<mode = "edge">(t, p, , last)',
    "Pad with given axes": "r = Pad(t, pads, , a)",
    "Pad of all axes": "r = Pad(t, all)",
    "Resize with sizes": 'r = Resize<axes = [2, 3], mode = "nearest">(t, , , sizes)',
    "Resize with scales": 'r = Resize<axes = [2, 3], mode = "linear">(t, , scales)',
    "Resize in another order": 'r = Resize<axes = [3, 2], mode = "nearest">(t, , , sizes)',
    "CenterCropPad": "r = CenterCropPad<axes = [2, 3]>(t, sizes)",
    "Slice": "r = Slice(t, zeros, n, axes)",
    "Slice with given axes": "r = Slice(t, zeros, n, a)",
    "ReduceSum": "r = ReduceSum<keepdims = 1>(t, a)",
    "Squeeze": "u = Unsqueeze(t, third) r = Squeeze(u, third)",
    "Split": "r, s = Split<axis = 1>(t, parts)",
}
FEEDS = {
    "x": np.random.default_rng(0).standard_normal((2, 4, 2, 3)).astype(np.float32),
    "p": np.array([1, 0, 0, 2]), "a": np.array([2, 3]), "n": np.array([3, 1]),
}  # fmt: skip


def between_transposes(text):
    return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 18]> g (
        float[N,H,W,3] x, int64[4] p, int64[2] a, int64[2] n) => (y) <
        int64[2] axes = {{2, 3}}, int64[2] last = {{-2, -1}}, int64[4] pads = {{1, 0, 0, 2}}, int64[2] zeros = {{0, 0}},
        int64[8] all = {{0, 0, 1, 0, 0, 0, 0, 2}}, int64[2] sizes = {{8, 4}}, float[2] scales = {{2, 3}},
        int64[1] third = {{2}}, int64[2] parts = {{1, 2}}> {{
        t = Transpose<perm = [0, 3, 1, 2]>(x) {text} y = Transpose<perm = [0, 2, 3, 1]>(r) }}""")


@pytest.mark.parametrize("what", OPERATORS)
def test_the_host_computes_what_the_model_says(what):
    model = between_transposes(OPERATORS[what])
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    feeds = {value.name: FEEDS[value.name] for value in model.graph.input}
    expected = session.run(None, feeds)[0]
    got = OnnxRuntimeCpu().load(RegionModel(dovetail.open(model)), {}).run(feeds)["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("what", ["Pad", "Resize with scales", "CenterCropPad", "Pad of all axes", "Slice"])
def test_a_remark_and_a_note_name_the_node_and_what_other_sessions_need(what):
    model = between_transposes(OPERATORS[what])
    compiled = dovetail.compile(model, "gpu-fp16")
    compiled.run({value.name: FEEDS[value.name] for value in model.graph.input})
    remarks = [remark for remark in compiled.remarks if remark.rule == "transpose-optimizer"]
    notes = [note for note in compiled.notes() if "transpose optimizer" in note]
    if "axes" not in OPERATORS[what] or what == "Slice":
        assert not remarks and not notes
        return
    (remark,), (note,) = remarks, notes
    node = next(node.name for node in compiled.model.graph if node.op_type == what.split()[0])
    assert remark.node == node and f"'{node}'" in note
    assert 'disabled_optimizers=["TransposeOptimizer"]' in remark.advice
