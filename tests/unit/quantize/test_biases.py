"""Biases of every shape that Gemm broadcasts: in integers, whether columns have a number each or share one."""

import dovetail
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 6)).astype(np.float32)


def gemm(bias, transposed, columns=3):
    weight = RNG.normal(size=(columns, 6) if transposed else (6, columns)).astype(np.float32)
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[4,6] x) => (float[4,{columns}] y) {{ [mul] y = Gemm <transB = {transposed}> (x, w, b) }}"""
    )
    for array, name in ((weight, "w"), (bias, "b")):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    return model, X @ (weight.T if transposed else weight) + bias


@pytest.mark.generated
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("shape", [(3,), (1, 3), (4, 3), (), (1,), (4, 1), (1, 1)])
def test_a_bias_is_added_in_integers(shape, transposed):
    model, expected = gemm(RNG.normal(size=shape), transposed)
    compiled = dovetail.compile(model, "bpu-int8", data={"x": X})
    assert compiled.plan.named("mul").backend == "bpu-int8"
    assert np.abs(compiled.run({"x": X})["y"] - expected).max() < 0.1


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (4, 1)])
def test_a_bias_of_the_only_column_is_added_in_integers(shape):
    model, expected = gemm(RNG.normal(size=shape), 1, columns=1)
    compiled = dovetail.compile(model, "bpu-int8", data={"x": X})
    assert compiled.plan.named("mul").backend == "bpu-int8"
    assert np.abs(compiled.run({"x": X})["y"] - expected).max() < 0.1
