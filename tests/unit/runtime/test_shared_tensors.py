"""OpenVINO reads the caller's arrays where they are, and writes large results into arrays of their own."""

import threading

import dovetail
import numpy as np
import pytest
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (EXTENT x) => (EXTENT y, float[512,256] t, EXTENT same, float[1,1] small) {
  y = Relu (x) t = Transpose <perm = [1, 0]> (y) same = Identity (x) small = ReduceMax (y) }"""
X = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)


@pytest.fixture(scope="module", params=["float[256,512]", "float[n,512]"], ids=["fixed", "open"])
def compiled(request):
    text = TEXT.replace("EXTENT", request.param)
    made = dovetail.compile(open_text(text, "m"), ["cpu-bf16"], high=("*",), verify=False)
    assert [runner.engine for runner in made.executor().runners] == ["openvino-cpu"]
    return made


def right(results, x):
    expected = {"y": np.maximum(x, 0), "t": np.maximum(x, 0).T, "same": x, "small": np.maximum(x, 0).max(keepdims=True)}
    return all(np.array_equal(results[name], array) for name, array in expected.items())


def test_results_stay_when_the_next_call_has_other_inputs(compiled):
    first = compiled.run({"x": X})
    assert right(compiled.run({"x": -X}), -X)
    assert right(first, X)


def test_inputs_stay_as_they_are_and_are_no_results(compiled):
    x = X.copy()
    results = compiled.run({"x": x})
    assert np.array_equal(x, X)
    assert not any(np.shares_memory(x, array) for array in results.values())


def read_only(x):
    return np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape)


@pytest.mark.parametrize("make", [np.asfortranarray, lambda x: x[::-1][::-1], read_only], ids=["F", "strides", "bytes"])
def test_any_array_may_be_given(compiled, make):
    assert right(compiled.run({"x": make(X)}), X)


def test_no_elements_are_an_input_too():
    text = TEXT.replace("EXTENT", "float[n,512]").replace("float[512,256] t", "float[512,n] t")
    text = text.replace(", float[1,1] small", "").replace("small = ReduceMax (y)", "")
    made = dovetail.compile(open_text(text, "m"), ["cpu-bf16"], high=("*",), verify=False)
    assert made.run({"x": X[:0]})["t"].shape == (512, 0)


def test_calls_of_several_threads_have_arrays_of_their_own(compiled):
    wrong = []

    def call(sign):
        x = sign * X
        wrong.extend(sign for _ in range(20) if not right(compiled.run({"x": x}), x))

    threads = [threading.Thread(target=call, args=(sign,)) for sign in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_in_bfloat16():
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[256,512] x, float[512,512] w) => (float[256,512] y) { [m] m = MatMul (x, w) [s] s = Neg (m)
      [host] y = Abs (s) }"""
    made = dovetail.compile(open_text(text, "m"), ["cpu-bf16"], pins=("host=host",), verify=False)
    w = np.random.default_rng(1).standard_normal((512, 512)).astype(np.float32) / 20
    first = made.run({"x": X, "w": w})["y"].copy()
    made.run({"x": 2 * X, "w": w})
    assert np.array_equal(made.run({"x": X, "w": w})["y"], first)
    assert np.allclose(first, np.abs(X @ w), atol=0.05)
