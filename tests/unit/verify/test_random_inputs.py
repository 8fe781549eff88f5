"""Random inputs, where there is no data: of the type and shape that a model takes, and the same for the same seed."""

import numpy as np
import pytest
from dovetail_onnx.opening import open_text
from dovetail_verify.random_inputs import random_batch


def model(inputs):
    head = '<ir_version: 10, opset_import: ["": 22]>'
    return open_text(f"{head} g ({inputs}) => (float[N,2] y) {{ y = Relu (x) }}", "test")


def test_random_inputs_are_the_same_for_the_same_seed():
    first, again, other = (random_batch(model("float[N,3] x"), seed)["x"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert first.shape == (1, 3)


@pytest.mark.parametrize(
    ("declared", "shape", "dtype"),
    [
        ("float[2,3]", (2, 3), "float32"),
        ("float[N,T]", (1, 16), "float32"),
        ("int64[N]", (1,), "int64"),
        ("bool[2]", (2,), "bool"),
        ("bfloat16[2]", (2,), "bfloat16"),
        ("float16", (), "float16"),
        ("float[0,2]", (0, 2), "float32"),
    ],
)
def test_random_inputs(declared, shape, dtype):
    feeds, again = (random_batch(model(f"{declared} x"), seed=1) for _ in range(2))
    assert (feeds["x"].shape, feeds["x"].dtype.name) == (shape, dtype)
    assert (feeds["x"] == again["x"]).all()
