"""Measure which bits and block sizes of MatMulNBits ONNX Runtime and OpenVINO compute, and with which results.

    python tools/nbits_kernels.py [--tokens 5]

Random integers in bits of 2, 3, 4 and 8 and blocks of 16 to 256, with zero points and without, are multiplied with
normally distributed numbers. A row has the SNR in dB of the result beside the product that the integers say, by
accuracy level, or why an engine refuses.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper

INNER, OUTER = 256, 96


def bits_of(array: np.ndarray, bits: int) -> np.ndarray:
    """Pack integers along the last axis, the first in the lowest bits."""
    spread = (array[..., None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(spread.reshape(*array.shape[:-1], -1), axis=-1, bitorder="little")


def product(bits: int, block: int, with_zeros: bool, level: int, tokens: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """Return a model of one product, and the weight that it stands for."""
    rng, blocks = np.random.default_rng(0), INNER // block
    integers = rng.integers(0, 1 << bits, (OUTER, blocks, block))
    scales = rng.uniform(0.1, 1, (OUTER, blocks)).astype(np.float32)
    zeros = rng.integers(0, 1 << bits, scales.shape) if with_zeros else np.full(scales.shape, 1 << (bits - 1))
    arrays = {"w": bits_of(integers, bits), "s": scales} | ({"z": bits_of(zeros, bits)} if with_zeros else {})
    node = helper.make_node(
        "MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft", bits=bits, block_size=block, K=INNER, N=OUTER,
        accuracy_level=level,
    )  # fmt: skip
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [tokens, extent])
        for name, extent in (("x", INNER), ("y", OUTER))
    )
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "product", [x], [y], constants)
    weight = ((integers - zeros[..., None]) * scales[..., None]).reshape(OUTER, INNER)
    return helper.make_model(graph, opset_imports=versions, ir_version=10), weight


def in_onnxruntime(content: bytes, x: np.ndarray) -> np.ndarray:
    """Run a model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def in_openvino(content: bytes, x: np.ndarray) -> np.ndarray:
    """Run a model in OpenVINO, in float32 without rounding what products read."""
    core = openvino.Core()
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    return core.compile_model(core.read_model(content), "CPU", exact)({"x": x})[0]


def decibels(run: Callable[[bytes, np.ndarray], np.ndarray], content: bytes, x: np.ndarray, exact: np.ndarray) -> str:
    """Return the SNR of a result, or the end of the message with which an engine refuses."""
    try:
        found = run(content, x)
    except Exception as error:  # noqa: BLE001 - each engine has its own
        return f"refused: {' '.join(str(error).split())[-60:]}"
    return f"{10 * np.log10(np.square(exact).sum() / np.square(found - exact).sum()):.0f}"


def main() -> None:
    """Print a row for every width, block and kind of zero point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=5)
    options = parser.parse_args()
    x = np.random.default_rng(1).standard_normal((options.tokens, INNER)).astype(np.float32)
    print("bits block zeros | ORT level 1 | ORT level 4 | OpenVINO")
    for bits, block, with_zeros in itertools.product((2, 3, 4, 8), (16, 32, 64, 128, 256), (False, True)):
        found = []
        for run, level in ((in_onnxruntime, 1), (in_onnxruntime, 4), (in_openvino, 1)):
            model, weight = product(bits, block, with_zeros, level, options.tokens)
            found.append(decibels(run, model.SerializeToString(), x, x @ weight.T))
        print(bits, block, "yes" if with_zeros else "no", "|", " | ".join(found), flush=True)


if __name__ == "__main__":
    main()
