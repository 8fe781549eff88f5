"""What makes int8 models of a file: Dovetail, quantize_static, and, each in a Python of its own, NNCF and AIMET."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

Feeds = dict[str, np.ndarray]
STATIC = ("MinMax", "Percentile", "Entropy")
NNCF = ("performance", "mixed")
LOWEST_OPSET = 13  # of DequantizeLinear with a scale per channel


def ours(model: Path, data: Sequence[Feeds], folder: Path, backend: str, fix_shapes: str | None = None) -> Path:
    """The result of compiling for a backend."""
    import dovetail

    options = {"fix_shapes": fix_shapes, "verify": False, "try_engines": False}
    dovetail.compile(model, [backend], data=list(data), **options).save(folder)
    return folder / "model.onnx"


def prepared(model: Path, folder: Path) -> Path:
    """The file for the others: at an opset that they take, after ONNX Runtime's own preprocessing."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    proto = onnx.load(model)
    version = next(one.version for one in proto.opset_import if one.domain in ("", "ai.onnx"))
    if version < LOWEST_OPSET:
        proto = onnx.version_converter.convert_version(proto, LOWEST_OPSET)
    raised, path = folder / "raised.onnx", folder / "prepared.onnx"
    onnx.save(proto, raised)
    with contextlib.chdir(folder):  # it leaves files in the folder that it runs in
        try:
            quant_pre_process(raised, path)
        except Exception:  # its symbolic inference does not know every operator
            quant_pre_process(raised, path, skip_symbolic_shape=True)
    return path


def quantize_static(
    model: Path,
    data: Sequence[Feeds],
    folder: Path,
    method: str,
    per_channel: bool,
    reduce_range: bool = False,
    activations: str = "QUInt8",
) -> Path:
    """QDQ with int8 weights.

    Args:
        model: A prepared file.
        data: The inputs that it is calibrated on.
        folder: Where the result goes.
        method: One of `STATIC`.
        per_channel: Whether each channel of a weight has a scale of its own.
        reduce_range: Whether weights have 7 bits, whose sums saturate on no CPU.
        activations: A name of ONNX Runtime's `QuantType`.
    """
    from onnxruntime import quantization as static

    class Reader(static.CalibrationDataReader):
        def __init__(self):
            self._feeds = iter(data)

        def get_next(self):
            return next(self._feeds, None)

    path = folder / f"static_{method}.onnx"
    static.quantize_static(
        model, path, Reader(), quant_format=static.QuantFormat.QDQ, per_channel=per_channel, reduce_range=reduce_range,
        activation_type=static.QuantType[activations], weight_type=static.QuantType.QInt8,
        calibrate_method=getattr(static.CalibrationMethod, method),
    )  # fmt: skip
    return path


def nncf(model: Path, data: Sequence[Feeds], folder: Path, preset: str, python: str, limit: float = 900) -> Path:
    """What `nncf.quantize` makes of it, in a Python that has NNCF.

    Raises:
        RuntimeError: It fails; with the end of what it said.
    """
    return _elsewhere(python, "nncf", model, data, folder, limit, preset)


def aimet(model: Path, data: Sequence[Feeds], folder: Path, python: str, limit: float = 900) -> Path:
    """What AIMET's `QuantizationSimModel` with its defaults writes as QDQ, in a Python that has aimet-onnx.

    Raises:
        RuntimeError: It fails; with the end of what it said.
    """
    return _elsewhere(python, "aimet", model, data, folder, limit)


def _elsewhere(
    python: str, tool: str, model: Path, data: Sequence[Feeds], folder: Path, limit: float, *settings: str
) -> Path:
    path, given = folder / f"{'_'.join((tool, *settings))}.onnx", folder / "data"
    given.mkdir(exist_ok=True)
    for number, feeds in enumerate(data):
        np.savez(given / f"{number:04}.npz", **feeds)
    command = [python, __file__, tool, model, path, given, *settings]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=limit)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-400:])
    return path


def _run_nncf(model: str, path: str, data: str, preset: str) -> None:
    import nncf as tool

    feeds = [dict(np.load(file)) for file in sorted(Path(data).iterdir())]
    presets = {"performance": tool.QuantizationPreset.PERFORMANCE, "mixed": tool.QuantizationPreset.MIXED}
    quantized = tool.quantize(onnx.load(model), tool.Dataset(feeds), preset=presets[preset], subset_size=len(feeds))
    onnx.save(quantized, path)


def _run_aimet(model: str, path: str, data: str) -> None:
    from aimet_onnx.quantsim import QuantizationSimModel

    feeds = [dict(np.load(file)) for file in sorted(Path(data).iterdir())]
    simulated = QuantizationSimModel(onnx.load(model), dummy_input=feeds[0], providers=["CPUExecutionProvider"])
    simulated.compute_encodings(feeds)
    onnx.save(simulated.to_onnx_qdq(), path)


def conversions(model: Path) -> int:
    """How many QuantizeLinear and DequantizeLinear of computed values a file has; those of weights cost nothing."""
    graph = onnx.load(model, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    constants |= set(itertools.chain.from_iterable(node.output for node in graph.node if node.op_type == "Constant"))
    names = ("QuantizeLinear", "DequantizeLinear")
    return sum(node.op_type in names and node.input[0] not in constants for node in graph.node)


def kernels(model: Path, folder: Path) -> Counter[str]:
    """The operators that ONNX Runtime runs, after its optimizers."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.optimized_model_filepath = 4, str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx", load_external_data=False).graph.node)


def _run_static(model: str, data: str, target: str) -> None:
    """quantize_static with its preprocessing and a scale for each channel, from a folder of samples to a file."""
    feeds = [dict(np.load(file)) for file in sorted(Path(data).iterdir())]
    with tempfile.TemporaryDirectory() as folder:
        made = quantize_static(prepared(Path(model), Path(folder)), feeds, Path(folder), "MinMax", True)
        made.replace(target)


if __name__ == "__main__":
    {"nncf": _run_nncf, "aimet": _run_aimet, "static": _run_static}[sys.argv[1]](*sys.argv[2:])
