"""Models executed by whoever runs them, and results compared."""

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

onnxruntime.set_default_logger_severity(4)


def array(value):
    """A tensor or a number as an array; sequences and the like as they are."""
    value = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    return np.asarray(value) if isinstance(value, np.generic) else value


def on_runtime(model, given, optimized=True):
    """The results on ONNX Runtime; None if it does not run the model."""
    options = onnxruntime.SessionOptions()
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, given)
    except Exception:
        return None


def on_evaluator(model, given):
    """The results on the evaluator of the onnx package; None if it does not run the model."""
    try:
        return ReferenceEvaluator(model).run(None, given)
    except Exception:
        return None


def run(model, given):
    """The results on ONNX Runtime, or where it has no kernel, on the evaluator of the onnx package; None if neither."""
    results = on_runtime(model, given)
    return on_evaluator(model, given) if results is None else results


def is_number(value):
    """Whether a value is an array whose elements can be compared as numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind not in "OUS"


def assert_agrees(result, expected):
    """Equal shapes, types and integers, and floats up to rounding; sequences, optionals and strings just run."""
    if not is_number(expected):
        return
    if expected.dtype.kind == "V" and result.dtype == np.uint8:
        result = result.view(expected.dtype)  # ONNX Runtime returns the bits of 8-bit floats
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected)
        return
    a, b = result.astype(np.float64), expected.astype(np.float64)
    largest = np.abs(b[np.isfinite(b)]).max(initial=0)
    close = 2e-3 if expected.dtype == np.float16 else 3e-4
    np.testing.assert_allclose(a, b, rtol=close, atol=close * largest)
