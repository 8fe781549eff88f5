"""Data is cut only where that was tried and changed nothing: an open first extent may be time."""

import dovetail
import numpy as np
import pytest
from dovetail.plugin import DovetailError
from dovetail_onnx.opening import open_text
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.independent_rows import why_rows_stay_together

HEAD = '<ir_version: 10, opset_import: ["": 18]>'

NETS = {
    "a window over time": (
        "float[input_dim_0,8] x",
        "x1 = Unsqueeze (x, ax) c = Conv (x1, w) y = Squeeze (c, ax)",
        "int64[2] ax = {0, 1}, float[1,1,5,1] w = {1,1,1,1,1}",
    ),
    "a wide window with few taps": (
        "float[input_dim_0,8] x",
        "x1 = Unsqueeze (x, ax) c = Conv <dilations = [40, 1], pads = [40, 0, 40, 0]> (x1, w) y = Squeeze (c, ax)",
        "int64[2] ax = {0, 1}, float[1,1,3,1] w = {1,1,1}",
    ),
    "a running sum": ("float[batch,8] x", "y = CumSum (x, ax)", "int64 ax = {0}"),
    "the mean of all rows": ("float[N,8] x", "m = ReduceMean (x, ax) y = Sub (x, m)", "int64[1] ax = {0}"),
    "the number of rows": ("float[N,8] x", "n = Shape (x) f = Cast <to = 1> (n) r = ReduceSum (f) y = Div (x, r)", ""),
    "the largest of all rows": ("float[batch_size,8] x", "y = ReduceMax <keepdims = 0> (x, ax)", "int64[1] ax = {0}"),
    "attention between rows": ("float[N,8] x", "t = Transpose (x) s = MatMul (x, t) p = Softmax (s) y = MatMul (p, x)",
                               ""),
    "scales of a whole batch": ("float[N,8] x", "q, s, z = DynamicQuantizeLinear (x) y = DequantizeLinear (q, s, z)",
                                ""),
}  # fmt: skip


def net(inputs, nodes, constants=""):
    declared = f" <{constants}>" if constants else ""
    return open_text(f"{HEAD} g ({inputs}) => (float[M,8] y){declared} {{ {nodes} }}", "test")


def rows(count, quiet=0):
    """Noise, after some rows of silence."""
    data = np.random.default_rng(0).standard_normal((count, 8)).astype(np.float32)
    data[:quiet] = 0
    return data


def sizes(model, data, **more):
    return [len(feeds["x"]) for feeds, _ in batches(model, data, **more)]


@pytest.mark.parametrize("quiet", [0, 100])
@pytest.mark.parametrize("name", NETS)
def test_rows_that_affect_each_other_stay_together(name, quiet):
    said = []
    assert sizes(net(*NETS[name]), {"x": rows(130, quiet)}, say=said.append) == [130]
    assert len(said) == 1 and said[0].startswith("130 rows of 'x' are run at once: ")


def test_independent_rows_are_cut_with_a_note():
    said = []
    assert sizes(net("float[input_dim_0,8] x", "y = Softmax (x)"), {"x": rows(130)}, say=said.append) == [64, 64, 2]
    assert said == ["130 rows of 'x' are run in parts of 64: the first 64 gave the same outputs whole and in two parts"]


@pytest.mark.parametrize("count", [3, 12, 16])
def test_rows_on_another_axis_of_the_result_are_independent_whatever_window_is_behind_them(count):
    constants = "float[4,1,7,7] w = {" + ", ".join(["0.01"] * 196) + "}, int64[3] s = {0, 4, -1}"
    nodes = "c = Conv <pads = [3,3,3,3]> (x, w) r = Relu (c) f = Reshape (r, s) y = Transpose <perm = [1,0,2]> (f)"
    text = f"{HEAD} g (float[batch,1,9,9] x) => (float[4,batch,81] y) <{constants}> {{ {nodes} }}"
    data = np.random.default_rng(0).standard_normal((count, 1, 9, 9)).astype(np.float32)
    assert why_rows_stay_together(open_text(text, "t"), {"x": data}, ["x"], count) == ""


def test_inputs_of_different_lengths_are_not_cut():
    model = net("float[N,8] x, float[N,8] b", "s = ReduceSum (b) y = Add (x, s)")
    assert sizes(model, {"x": rows(130), "b": rows(100)}) == [130]


@pytest.mark.parametrize("count", [100, 130])
def test_a_result_runs_arrays_as_they_are(count):
    compiled = dovetail.compile(net(*NETS["a window over time"]), "cpu-bf16")
    assert compiled.run_on({"x": rows(count)})["y"].shape == (count - 4, 8)


def test_a_verification_sees_all_frames():
    model = net(*NETS["a window over time"])
    compiled = dovetail.compile(model, "host", data={"x": rows(130)}, verify=True)
    assert compiled.verification.batches == 1
    assert "130 rows of 'x' are run at once" in compiled.verification.notes[0]


def test_what_a_fixed_extent_cuts_is_said():
    compiled = dovetail.compile(net("float[2,8] x", "y = Softmax (x)"), "host")
    assert compiled.run_on({"x": rows(6)})["y"].shape == (6, 8)
    assert "6 rows of 'x' are run in parts of 2: the model takes no more at once" in compiled.notes()


def test_numbers_of_several_runs_are_joined():
    text = f"{HEAD} g (float[2,8] x) => (float y) {{ y = ReduceSum <keepdims = 0> (x) }}"
    assert dovetail.compile(open_text(text, "t"), "host").run_on({"x": rows(6)})["y"].shape == (3,)


def test_results_of_different_shapes_are_not_joined():
    text = f"{HEAD} g (float[1,8] x) => (int64[2,n] y) {{ y = NonZero (x) }}"
    data = rows(3)
    data[1, :4] = 0
    with pytest.raises(DovetailError, match="output 'y' has other shapes from run to run"):
        dovetail.compile(open_text(text, "t"), "host").run_on({"x": data})
