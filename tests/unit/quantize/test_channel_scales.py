"""A scale per channel of a weight: which axis of results and biases has it, and what becomes of the numbers."""

import dovetail
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from .integer_models import file_for

SPREAD = np.array([1, 100, 0.01, 3], np.float32)  # magnitudes of the channels, so that a wrong axis costs them all
COLUMNS = file_for(
    "int8",
    ("{when: {B.constant: true}, types: {A: a, B: w,", "{when: {B.constant: true, B.rank: 2}, types: {A: a, B: w1,"),
    ("Y: [a, tail]", "Y: [tail, a]"),
)
# operator, extents of input, weight and bias, axes of the weight's channels and of the result's, attributes
PRODUCTS = {
    "matmul, vector": ("MatMul", [8], [8, 4], None, 1, 0, {}),
    "matmul, rank 2": ("MatMul", [10, 8], [8, 4], None, 1, 1, {}),
    "matmul, rank 3": ("MatMul", [2, 10, 8], [8, 4], None, 1, 2, {}),
    "matmul, axis 1 as long as the columns": ("MatMul", [2, 4, 8], [8, 4], None, 1, 2, {}),
    "matmul, rank 4": ("MatMul", [2, 1, 10, 8], [8, 4], None, 1, 3, {}),
    "matmul, all extents alike": ("MatMul", [4, 4, 4, 8], [8, 4], None, 1, 3, {}),
    "matmul, rank 5": ("MatMul", [1, 2, 3, 10, 8], [8, 4], None, 1, 4, {}),
    "gemm": ("Gemm", [10, 8], [8, 4], [4], 1, 1, {}),
    "gemm, transposed": ("Gemm", [10, 8], [4, 8], [4], 0, 1, {"transB": 1}),
    "gemm, bias of one row": ("Gemm", [10, 8], [8, 4], [1, 4], 1, 1, {}),
    "gemm, bias of one column": ("Gemm", [10, 8], [8, 4], [10, 1], 1, 1, {}),
    "gemm, bias of one number": ("Gemm", [10, 8], [8, 4], [1], 1, 1, {}),
    "gemm, bias without axes": ("Gemm", [10, 8], [8, 4], [], 1, 1, {}),
    "gemm, transposed, bias without axes": ("Gemm", [10, 8], [4, 8], [], 0, 1, {"transB": 1}),
    "conv, 1 axis": ("Conv", [1, 8, 6], [4, 8, 3], [4], 0, 1, {}),
    "conv, groups": ("Conv", [1, 8, 6, 6], [8, 2, 3, 3], [8], 0, 1, {"group": 4}),
    "conv, 3 axes": ("Conv", [1, 8, 6, 6, 6], [4, 8, 3, 3, 3], [4], 0, 1, {}),
    "transposed conv": ("ConvTranspose", [1, 8, 6, 6], [8, 4, 2, 2], [4], 1, 1, {"strides": [2, 2]}),
    "transposed conv, groups": ("ConvTranspose", [1, 8, 6, 6], [8, 4, 2, 2], [8], 1, 1, {"group": 2}),
    "transposed conv, a group per channel": ("ConvTranspose", [1, 8, 6, 6], [8, 1, 2, 2], [8], 1, 1, {"group": 8}),
    "transposed conv, groups without bias": ("ConvTranspose", [1, 8, 6], [8, 4, 2], None, 1, 1, {"group": 2}),
}


def model_of(case, behind):
    operator, x, weight, bias, axis, _, attributes = PRODUCTS[case]
    rng = np.random.default_rng(0)
    spread = np.resize(SPREAD, weight[axis]).reshape([-1 if at == axis else 1 for at in range(len(weight))])
    constants = {"w": rng.standard_normal(weight) * spread}
    if bias is not None:
        constants["b"] = rng.standard_normal(bias) * (np.resize(SPREAD, bias[-1]) if bias and bias[-1] > 1 else 1)
    nodes = [helper.make_node(operator, ["x", *constants], ["p"], "product", **attributes)]
    if behind:
        nodes.append(helper.make_node("Relu", ["p"], ["y"], "relu"))
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", floats, x)],
        [helper.make_tensor_value_info("y" if behind else "p", floats, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.generated
@pytest.mark.parametrize("arithmetic", ["integers", "floats"])
@pytest.mark.parametrize("behind", [False, True], ids=["alone", "relu"])
@pytest.mark.parametrize("case", PRODUCTS)
def test_scales_are_those_of_the_channels(plugins_in_integers, case, behind, arithmetic):
    """Every channel of the sums is near, and each value has as many scales as it has channels along its axis."""
    *_, channels, _ = PRODUCTS[case]
    model = model_of(case, behind)
    feeds = {"x": np.random.default_rng(1).standard_normal(PRODUCTS[case][1]).astype(np.float32)}
    file = COLUMNS.replace("arithmetic: integers", f"arithmetic: {arithmetic}")
    result = dovetail.compile(model, "npu", data=feeds, plugins=plugins_in_integers(file), refine="none")

    assert {node.name: node.backend for node in result.plan.nodes}["product"] == "npu"
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    (sums,) = result.plan.values["p"]
    if sums["format"].startswith("int32"):
        assert sums["format"] == f"int32[symmetric,axis={channels}]"
        assert len(sums["scale"]) == expected.shape[channels]
    if not behind:
        (found,) = result.run(feeds).values()
        wrong = np.moveaxis(found - expected, channels, 0).reshape(expected.shape[channels], -1)
        right = np.moveaxis(expected, channels, 0).reshape(expected.shape[channels], -1)
        assert ((wrong**2).sum(1) < 0.01 * (right**2).sum(1)).all()
