"""Compare the emulation of float16 sums with what ONNX Runtime's WebGPU provider computes, operator by operator.

    ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1 python tools/measure_sums.py [OPERATOR ...]

The variable lets the provider use Mesa's software Vulkan (`mesa-vulkan-drivers` 25.0 or newer) where there is no GPU.
Each row is a model of one operator on random numbers: the SNR against float32 of the provider, of the emulation
(`half-sums`) and of rounding alone (`onnxruntime-cpu`), and the share of elements that the emulation has bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import dovetail
import numpy as np
import onnx
from dovetail.plugin import EngineError, RegionModel
from dovetail_gpu_fp16.half.engine import HalfSums
from dovetail_host import OnnxRuntimeCpu
from dovetail_onnxruntime_ep import WebGpu
from onnx import helper

Arrays = list[np.ndarray]


def cases() -> Iterator[tuple[str, str, Arrays, int, dict]]:
    """Title, operator, inputs (all but the first are constants where the count says so), constants, attributes."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float16)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float16)

    for rows, inner, columns in ((8, 1024, 64), (1, 512, 63), (64, 64, 64)):
        yield f"MatMul {rows}x{inner}x{columns}", "MatMul", [normal(rows, inner), normal(inner, columns)], 1, {}
        for flag in (0, 1):
            b = normal(columns, inner) if flag else normal(inner, columns)
            inputs = [normal(rows, inner), b, normal(columns)]
            yield f"Gemm {rows}x{inner}, transB={flag}", "Gemm", inputs, 2, {"transB": flag}
    yield "MatMul of values", "MatMul", [normal(2, 4, 16, 64), normal(2, 4, 64, 16)], 0, {}
    for channels, filters, size, stride, groups, pad in (
        (32, 64, 3, 1, 1, 1), (3, 32, 3, 2, 1, 1), (64, 64, 1, 1, 1, 0), (32, 32, 5, 1, 32, 2), (32, 64, 3, 1, 4, 0),
    ):  # fmt: skip
        title = f"Conv {channels}->{filters}, {size}x{size}, stride {stride}, {groups} groups"
        inputs = [normal(1, channels, 14, 14), weights(filters, channels // groups, size, size), normal(filters)]
        attributes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "group": groups, "pads": [pad] * 4}
        yield title, "Conv", inputs, 2, attributes
    yield "Conv 1-D", "Conv", [normal(1, 16, 40), weights(24, 16, 5)], 1, {"kernel_shape": [5], "pads": [2, 2]}
    for channels, filters, size, stride in ((64, 32, 4, 2), (32, 1, 3, 2), (16, 16, 3, 1)):
        attributes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [1] * 4}
        inputs = [normal(1, channels, 8, 8), weights(channels, filters, size, size)]
        yield f"ConvTranspose {channels}->{filters}, stride {stride}", "ConvTranspose", inputs, 1, attributes
    for shape in ((16, 1000), (1, 5000), (3000, 20)):
        for kind in ("Sum", "Mean", "L1", "L2", "SumSquare", "LogSumExp"):
            yield f"Reduce{kind} {shape}", f"Reduce{kind}", [normal(*shape), np.array([1])], 1, {}
    for shape in ((16, 64), (16, 1000), (1, 4096), (8, 7)):
        for kind in ("Softmax", "LogSoftmax"):
            yield f"{kind} {shape}", kind, [(3 * normal(*shape)).astype(np.float16)], 0, {"axis": 1}
    for size in (64, 1000):
        yield f"LayerNormalization {size}", "LayerNormalization", [normal(16, size), normal(size), normal(size)], 2, {}
        yield f"RMSNormalization {size}", "RMSNormalization", [normal(16, size), normal(size)], 1, {}
    yield "InstanceNormalization", "InstanceNormalization", [normal(1, 16, 1000), normal(16), normal(16)], 2, {}
    statistics = [np.abs(normal(8)) + np.float16(0.1) for _ in range(4)]
    yield "BatchNormalization", "BatchNormalization", [normal(2, 8, 12, 12), *statistics], 4, {}
    for size in (7, 32):
        yield f"GlobalAveragePool {size}", "GlobalAveragePool", [normal(1, 8, size, size)], 0, {}
    yield "AveragePool", "AveragePool", [normal(1, 8, 32, 32)], 0, {"kernel_shape": [3, 3], "pads": [1] * 4}
    yield "CumSum", "CumSum", [normal(4, 300), np.array(1)], 1, {}
    for kind in ("Exp", "Sigmoid", "Tanh", "Erf", "Elu", "HardSigmoid", "HardSwish", "Gelu"):
        yield kind, kind, [(3 * normal(1000)).astype(np.float16)], 0, {}
    yield "Gelu tanh", "Gelu", [(3 * normal(1000)).astype(np.float16)], 0, {"approximate": "tanh"}
    yield "Log", "Log", [np.abs(normal(1000)) + np.float16(0.01)], 0, {}


def model_of(operator: str, inputs: Arrays, constants: int, attributes: dict, wide: bool = False) -> onnx.ModelProto:
    """A model of one node, with the last inputs as constants; `wide` in float64 or float32."""
    names = [f"input_{index}" for index in range(len(inputs))]
    given = [array.astype(np.float32) if wide and array.dtype.kind == "f" else array for array in inputs]
    node = helper.make_node(operator, names, ["result"], name="node", **attributes)
    types = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in given]
    free = len(inputs) - constants
    graph = helper.make_graph(
        [node], "one",
        [helper.make_tensor_value_info(*one) for one in zip(names, types, [a.shape for a in given])][:free],
        [helper.make_tensor_value_info("result", types[0], None)],
        [onnx.numpy_helper.from_array(array, name) for array, name in zip(given[free:], names[free:])],
    )  # fmt: skip
    opset = 23 if operator == "RMSNormalization" else 21
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made)


def snr(expected: np.ndarray, found: np.ndarray) -> float:
    """The ratio of signal to noise in dB."""
    exact = expected.astype(np.float64)
    noise = ((found.astype(np.float64) - exact) ** 2).sum()
    return float(10 * np.log10((exact**2).sum() / max(noise, 1e-300)))


def main() -> None:
    """Print the table."""
    wanted = set(sys.argv[1:])
    print("| operator | WebGPU | half-sums | rounding alone | equal, % |\n|---|---|---|---|---|")
    for title, operator, inputs, constants, attributes in cases():
        if wanted and operator not in wanted:
            continue
        names = [f"input_{index}" for index in range(len(inputs) - constants)]
        feeds = dict(zip(names, inputs))
        proto = model_of(operator, inputs, constants, attributes)
        exact = model_of(operator, inputs, constants, attributes, wide=True)
        found = {}
        for engine in (WebGpu(), HalfSums(), OnnxRuntimeCpu()):
            try:
                found[engine.name] = engine.load(RegionModel(dovetail.open(proto)), {}).run(feeds)["result"]
            except EngineError as error:
                print(f"| {title} | {engine.name}: {error.message} | | | |")
                break
        else:
            wide = {name: array.astype(np.float32) for name, array in feeds.items()}
            expected = OnnxRuntimeCpu().load(RegionModel(dovetail.open(exact)), {}).run(wide)["result"]
            device, emulated, rounded = found.values()
            rates = " | ".join(f"{snr(expected, one):.1f}" for one in (device, emulated, rounded))
            print(f"| {title} | {rates} | {100 * (device == emulated).mean():.0f} |", flush=True)


if __name__ == "__main__":
    main()
