"""bfloat16 for ONNX Runtime: it loads, computes in float32, and keeps the weights as they are stored."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail_decoder.float32_arithmetic import compute_in_float32, has_bfloat16
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.random.default_rng(0).standard_normal((4, 4)).astype(ml_dtypes.bfloat16)
X = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)


def weight(name):
    return helper.make_tensor(name, TensorProto.BFLOAT16, WEIGHT.shape, WEIGHT.tobytes(), raw=True)


def model_of(text, *weights):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{text}')
    model.graph.initializer.extend(weights)
    return model


BORDERS = "g (float[N, 4] x) => (float[N, 4] y) { a = Cast<to = 16>(x)  b = MatMul(a, w)  y = Cast<to = 1>(b) }"
PORTS = "g (bfloat16[N, 4] x) => (bfloat16[N, 4] y) { y = MatMul(x, w) }"
BODIES = """g (float[N, 4] x, bool c) => (float[N, 4] y) {
    a = Cast<to = 16>(x)
    b = If(c) <
        then_branch = t () => (bfloat16[N, 4] u) { u = MatMul(a, w) },
        else_branch = e () => (bfloat16[N, 4] v) { v = Mul(a, a) }
    >
    y = Cast<to = 1>(b)
}"""
CONSTANTS = """g (float[N, 4] x) => (float[N, 4] y) {
    a = Cast<to = 16>(x)
    k = Constant()
    b = MatMul(a, k)
    y = Cast<to = 1>(b)
}"""


def constants():
    model = model_of(CONSTANTS)
    model.graph.node[1].attribute.append(helper.make_attribute("value", weight("k")))
    return model


MODELS = {
    "borders": (lambda: model_of(BORDERS, weight("w")), {}, X @ WEIGHT.astype(np.float32)),
    "ports": (lambda: model_of(PORTS, weight("w")), {}, X @ WEIGHT.astype(np.float32)),
    "then": (lambda: model_of(BODIES, weight("w")), {"c": np.array(True)}, X @ WEIGHT.astype(np.float32)),
    "constants": (constants, {}, X @ WEIGHT.astype(np.float32)),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_loads_and_computes_in_float32(name):
    make, feeds, wanted = MODELS[name]
    model = make()
    assert has_bfloat16(model)
    stored = [numpy_helper.to_array(tensor).tobytes() for tensor in model.graph.initializer]
    compute_in_float32(model)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = session.run(None, {"x": X, **feeds})
    np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-5)
    assert [numpy_helper.to_array(tensor).tobytes() for tensor in model.graph.initializer] == stored


def test_float16_is_left_alone():
    model = model_of("g (float[N, 4] x) => (float[N, 4] y) { a = Cast<to = 10>(x)  y = Cast<to = 1>(a) }")
    assert not has_bfloat16(model)
