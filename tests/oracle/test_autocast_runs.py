"""What PyTorch's CPU autocast really does, recorded, and what our regions do with the same operators.

The recordings (torch 2.13) give the element type of the result for input patterns inside a bfloat16 region.
"""

import json
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.ir.types import dtype_name

RECORDED = Path(__file__).parents[3] / "shared" / "oracles" / "autocast" / "dev" / "expected.json"
SHORT = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}

UNARY = {
    "acos": "Acos", "asin": "Asin", "atan": "Atan", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf",
    "exp": "Exp", "floor": "Floor", "gelu": "Gelu", "hardswish": "HardSwish", "leaky_relu": "LeakyRelu",
    "log_softmax": "LogSoftmax", "mish": "Mish", "neg": "Neg", "reciprocal": "Reciprocal", "relu": "Relu",
    "selu": "Selu", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "softmax": "Softmax", "softsign": "Softsign",
    "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh", "transpose": "Transpose", "clamp": "Clip", "sum": "ReduceSum",
    "prod_dim": "ReduceProd", "norm_p2": "ReduceL2", "linalg_vector_norm": "ReduceL2",
}  # fmt: skip
BINARY = {
    "add": "Add", "sub": "Sub", "div": "Div", "maximum": "Max", "minimum": "Min", "ge": "GreaterOrEqual",
    "mm": "MatMul", "prelu": "PRelu",
}  # fmt: skip
ALONE = ("f32", "bf16", "f16", "f64")
PAIRS = ("f32", "bf16", "bf16_then_f32", "f32_then_bf16", "f16_then_bf16", "f64", "f64_then_f32")


@pytest.fixture(scope="module")
def recorded():
    if not RECORDED.is_file():
        pytest.skip("the recordings are not beside the repository")
    return json.loads(RECORDED.read_text())["runs"]


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


@pytest.mark.parametrize(("torch", "onnx"), UNARY.items(), ids=UNARY)
def test_operators_of_one_input(torch, onnx, recorded, plugins):
    for pattern in ALONE:
        expected = recorded[torch].get(pattern, {}).get("bf16")
        if expected is not None and not expected.startswith("error"):
            assert ours(onnx, [pattern], plugins) == expected, pattern


@pytest.mark.parametrize(("torch", "onnx"), BINARY.items(), ids=BINARY)
def test_operators_of_two_inputs(torch, onnx, recorded, plugins):
    for pattern in PAIRS:
        expected = recorded[torch].get(pattern, {}).get("bf16")
        first, _, second = pattern.partition("_then_")
        if expected is None or expected.startswith("error"):
            continue  # torch promotes two types only; ours meet in a third: see the tests of regions
        if "f64" in pattern and second:
            continue  # torch promotes to float64 by itself; ONNX does not
        assert ours(onnx, [first, second or first], plugins) == expected, pattern


def ours(operator, patterns, plugins):
    """The element type of the operator's result in a bfloat16 region, for inputs of these types."""
    builder = dovetail.Builder()
    inputs = [builder.input(f"x{index}", SHORT[kind], [4, 4]) for index, kind in enumerate(patterns)]
    if operator in ("ReduceSum", "ReduceProd", "ReduceL2"):
        inputs.append(builder.constant(np.array([0])))
    with dovetail.autocast("bfloat16", plugins=plugins):
        return dtype_name(getattr(builder, operator)(*inputs).dtype)
