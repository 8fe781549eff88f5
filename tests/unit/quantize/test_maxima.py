"""Of a value of which only maxima are read, `mse` sees these: the few large numbers are all that counts."""

import dovetail
import numpy as np
import onnx
import pytest

NET = """<ir_version: 8, opset_import: ["": 17]>
  g (float[1,2,256,256] x) => (float[1,2,1,1] y OTHER)
  <float[2,2,1,1] w = {1.0, 0.1, -0.1, 1.0}, float[2] b = {0.0, 0.0}> {
    [first] a = Conv (x, w, b)
    [last] c = Conv (a, w, b)
    BEHIND
  }"""
ENDS = {
    "a maximum": "y = ReduceMax <axes = [2, 3], keepdims = 1> (c)",
    "a maximum of maxima": "p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)\n"
                           "y = ReduceMax <axes = [2, 3], keepdims = 1> (p)",
    "a mean": "y = ReduceMean <axes = [2, 3], keepdims = 1> (c)",
}  # fmt: skip


def data():
    """Noise with one large number in each picture, which is its maximum."""
    rng = np.random.default_rng(0)
    for _ in range(16):
        x = rng.standard_normal((1, 2, 256, 256)).astype(np.float32)
        x[:, :, 5, 7] = rng.uniform(8, 9)
        yield {"x": x}


def reach(behind, other=""):
    """The largest number that the result of the last convolution can have."""
    proto = onnx.parser.parse_model(NET.replace("BEHIND", behind).replace("OTHER", other))
    result = dovetail.compile(proto, "ppl-int8", data=list(data()))
    (held,) = result.plan.values["c"]
    return held["scale"] * 127


@pytest.mark.parametrize("end", ["a maximum", "a maximum of maxima"])
def test_maxima_do_not_saturate(end):
    assert reach(ENDS[end]) > 9.5


@pytest.mark.slow
def test_numbers_that_are_averaged_do():
    assert reach(ENDS["a mean"]) < 0.9 * reach(ENDS["a maximum"])


@pytest.mark.slow
def test_numbers_that_something_else_reads_do_too():
    assert reach(ENDS["a maximum"], ", float[1,2,256,256] c") == reach(ENDS["a mean"])
