"""Results to report on, small enough to be read."""

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w = {WEIGHTS}> {
  [conv] a = Conv (x, w)
  [soft] b = Softmax <axis = 1> (a)
  [again] c = Conv (b, w)
  [tail] y = Relu (c)
}""".replace("WEIGHTS", ",".join(f"{0.13 * i - 1:.2f}" for i in range(16)))


@pytest.fixture
def model():
    return onnx.parser.parse_model(MODEL)


@pytest.fixture
def compiled(model):
    """Convolutions in bfloat16, the softmax between them in float32 and on the host."""
    return dovetail.compile(model, "cpu-bf16", pins=["soft=host"])


@pytest.fixture
def measured(model):
    """The same with data: ranges and an accuracy."""
    data = {"x": np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype("float32")}
    return dovetail.compile(model, "cpu-bf16", pins=["soft=host"], data=data)
