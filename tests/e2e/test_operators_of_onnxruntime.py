"""Operators that ONNX Runtime defines in the default domain: its exporters write them, the host runs them.

Backends whose engines have SimplifiedLayerNormalization take it.

All but SimplifiedLayerNormalization were experimental operators of old opsets, and exist up to opset 9.
"""

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail_schemas.operators import is_operator
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

OPERATORS = {
    "SimplifiedLayerNormalization": (["m", "s"], {"axis": -1, "epsilon": 1e-5}),
    "Affine": (["m"], {"alpha": 2.0, "beta": 1.0}),
    "ParametricSoftplus": (["m"], {"alpha": 2.0, "beta": 1.0}),
    "Scale": (["m"], {"scale": 2.0}),
    "ScaledTanh": (["m"], {"alpha": 2.0, "beta": 0.5}),
    "DynamicSlice": (["m", "first", "second"], {}),
    "ImageScaler": (["i"], {"scale": 2.0, "bias": [1.0]}),
    "Crop": (["i"], {"border": [0, 1, 0, 1]}),
}
COPIES = {"MemcpyFromHost", "MemcpyToHost"}  # inserted by ONNX Runtime itself, between devices


def model_of(operator):
    inputs, attributes = OPERATORS[operator]
    constants = {
        "w": np.eye(8, dtype=np.float32), "s": np.full(8, 2, np.float32), "shape": np.array([-1, 1, 4, 2]),
        "first": np.array([0]), "second": np.array([1]),
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "product"),
        helper.make_node("Reshape", ["m", "shape"], ["i"], "image"),
        helper.make_node(operator, inputs, ["o"], "special", **attributes),
        helper.make_node("Relu", ["o"], ["y"], "relu"),
    ]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items() if name in used],
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21 if operator.startswith("Simplified") else 9)], ir_version=8
    )


@pytest.mark.generated(one_of=4)
@pytest.mark.parametrize("backend", ["host", "cpu-bf16", "gpu-fp16", "cpu-int8", "ppl-int8"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_host_runs_what_the_backend_does_not_take(operator, backend):
    model = model_of(operator)
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}
    compiled = dovetail.compile(model, [backend], data=feeds)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    got = compiled.run(feeds)["y"]
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, atol=0.03 * np.abs(expected).max())
    takes = operator == "SimplifiedLayerNormalization" and backend != "ppl-int8"
    placed = {node.backend for node in compiled.plan.nodes if node.name == "special"}
    assert placed == {backend if takes else "host"}


def test_what_follows_has_a_shape():
    compiled = dovetail.compile(model_of("SimplifiedLayerNormalization"), ["cpu-bf16"], verify=False)
    assert list(compiled.model.graph.outputs[0].shape) == ["N", 8]


def test_all_of_them_are_known():
    of_onnx = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    kernels = state.get_all_opkernel_def()
    own = {one.op_name for one in kernels if not one.domain and one.provider == "CPUExecutionProvider"} - of_onnx
    assert own - COPIES == set(OPERATORS)
    assert all(is_operator("", name) for name in own - COPIES)
