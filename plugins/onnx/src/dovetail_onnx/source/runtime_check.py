"""Check a source model with ONNX Runtime, which knows the types of operators that onnx has no schema for."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from dovetail_onnx.skeleton import is_stub
from dovetail_onnx.tensor_data import size_in_bytes

if TYPE_CHECKING:
    import onnx


_LARGEST = 1 << 28  # bytes; the session gets zeros of the same size as the weights
# Messages about invalid models, as opposed to missing kernels.
_WRONG = ("Type Error", "ShapeInferenceError", "TypeInferenceError", "INVALID_GRAPH")


def runtime_error(proto: onnx.ModelProto) -> str:
    """Return why ONNX Runtime finds `proto` invalid; empty if it does not.

    Args:
        proto: The proto of a skeleton; changed in place.
    """
    stubs = [tensor for tensor in proto.graph.initializer if is_stub(tensor)]
    if importlib.util.find_spec("onnxruntime") is None or sum(map(size_in_bytes, stubs)) > _LARGEST:
        return ""
    import onnxruntime

    for tensor in stubs:
        tensor.raw_data = bytes(size_in_bytes(tensor))
        tensor.ClearField("data_location")
        del tensor.external_data[:]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the binding's exceptions share no base class below Exception
        text = str(error)
        return text if any(mark in text for mark in _WRONG) else ""
    return ""
