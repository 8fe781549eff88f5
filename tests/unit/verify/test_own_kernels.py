"""A source whose engine computes an operator otherwise than documented is named as the one at fault."""

import dovetail
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

INNER, OUTER, BLOCK = 64, 32, 32


def product(*, index, zero_points):
    """A product with a weight of 4 bits; ONNX Runtime's kernel on CPUs ignores zero points where there is an index."""
    rng = np.random.default_rng(0)
    blocks = INNER // BLOCK
    arrays = {
        "packed": rng.integers(0, 256, (OUTER, blocks, BLOCK // 2), dtype=np.uint8),
        "scales": rng.uniform(0.01, 0.1, OUTER * blocks).astype(np.float32),
        "zero_points": rng.integers(0, 256, OUTER * ((blocks + 1) // 2), dtype=np.uint8),
        "index": rng.permutation(np.arange(INNER) // BLOCK).astype(np.int32),
    }
    given = ["x", "packed", "scales", "zero_points" if zero_points else "", "index" if index else ""]
    nodes = [
        helper.make_node(
            "MatMulNBits", given, ["a"], "product", domain="com.microsoft", K=INNER, N=OUTER, bits=4, block_size=BLOCK
        ),
        helper.make_node("Relu", ["a"], ["y"], "relu"),
    ]
    used = {name: array for name, array in arrays.items() if name in given}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", INNER])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", OUTER])],
        [numpy_helper.from_array(array, name) for name, array in used.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model)
    return model


@pytest.mark.parametrize(("index", "zero_points"), [(True, True), (True, False), (False, True)])
def test_the_kernel_of_the_source_is_named(index, zero_points):
    data = {"x": np.random.default_rng(1).standard_normal((16, INNER)).astype(np.float32)}
    model = product(index=index, zero_points=zero_points)
    compiled = dovetail.compile(model, "cpu-bf16", data=data)
    for found in (compiled.verification, dovetail.verify(model, compiled, data)):
        said = [note for note in found.notes if "the source is at fault" in note]
        assert bool(said) == (found.worst_snr_db < 20) == (index and zero_points)
        if said:
            assert "com.microsoft.MatMulNBits ('product') otherwise than documented" in said[0]
