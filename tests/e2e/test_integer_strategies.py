"""A convolutional net in int8 by each of the strategies for integers: it finds the same digits."""

from pathlib import Path

import dovetail
import numpy as np
import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
INT8 = """
backend: digits-int8
device: npu
opset: 13..26
dynamic: accept
precision: {low: int8, high: float32}
types:
  q8: {dtype: int8, scheme: symmetric}
  b32: {dtype: int32, scale: X*W}
  c32: {dtype: int32, scale: A*B}
ops:
  Conv: {role: active, types: {X: q8, W: q8, B: b32, Y: q8}}
  Gemm: {role: active, types: {A: q8, B: q8, C: c32, Y: q8}}
  Relu, MaxPool, Flatten, Reshape: {role: passive, types: q8, same_scale: true}
place: {strategy: conservative}
emit: {engines: [onnxruntime-cpu]}
"""


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize(
    ("strategy", "claimed"),
    [("conservative", 12), ("conv-to-conv", 7), ("aggressive", 12), ("pointwise", 5), ("all-in", 12), ("perseus", 12)],
)
def test_the_digits(strategy, claimed, with_backend):
    data = np.load(DIGITS / "test.npz")
    plugins = with_backend(INT8)
    compiled = dovetail.compile(
        DIGITS / "digits.onnx", "digits-int8", strategy=strategy, data={"image": data["image"][:64]}, plugins=plugins
    )
    assert sum(node.backend == "digits-int8" for node in compiled.plan.nodes) == claimed
    labels = data[next(name for name in data if name != "image")]
    (scores,) = compiled.run({"image": data["image"]}).values()
    original = dovetail.compile(DIGITS / "digits.onnx", "host", plugins=plugins)
    (exact,) = original.run({"image": data["image"]}).values()
    found, before = ((result.argmax(-1) == labels).mean() for result in (scores, exact))
    assert found >= before - 0.005
