"""Public converters to float16, and ours: one function each, from a file to a file, giving the seconds it converted.

    python bench/converters.py TOOL SOURCE TARGET

does one conversion and prints the seconds; that is how tools are called which need an environment of their own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path


def ours(request: dict) -> Callable[[Path, Path], float]:
    """Ours with some options; saving is counted, because it is where weights are converted."""

    def convert(source: Path, target: Path) -> float:
        import dovetail

        model = dovetail.open(source)
        start = time.perf_counter()
        dovetail.compile(model, **request, verify=False).save(target.parent)
        return time.perf_counter() - start

    return convert


def onnxconverter_common(source: Path, target: Path) -> float:
    from onnxconverter_common import float16

    by_path = float16.convert_float_to_float16_model_path if _external(source) else None
    return _converted(source, target, by_path or float16.convert_float_to_float16, bool(by_path))


def onnxruntime_float16(source: Path, target: Path) -> float:
    from onnxruntime.transformers import float16

    return _converted(source, target, float16.convert_float_to_float16, _external(source))


def onnxruntime_model(source: Path, target: Path) -> float:
    from onnxruntime.transformers.onnx_model import OnnxModel

    def convert(model, keep_io_types):
        wrapped = OnnxModel(model)
        wrapped.convert_float_to_float16(keep_io_types=keep_io_types)
        return wrapped.model

    return _converted(source, target, convert)


def modelopt(source: Path, target: Path) -> float:
    from modelopt.onnx.autocast import convert_to_f16

    return _converted(source, target, convert_to_f16)


def modelopt_autocast(source: Path, target: Path) -> float:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    data = source.with_suffix(".npz")

    def convert(path, keep_io_types):
        calibration = str(data) if data.exists() else None
        return convert_to_mixed_precision(path, keep_io_types=keep_io_types, calibration_data=calibration)

    return _converted(source, target, convert, True)


def onnxslim(source: Path, target: Path) -> float:
    import onnxslim

    return _converted(source, target, lambda model, keep_io_types: onnxslim.slim(model, dtype="fp16"))


def polygraphy(source: Path, target: Path) -> float:
    from polygraphy.backend.onnx import convert_to_fp16

    return _converted(source, target, lambda model, keep_io_types: convert_to_fp16(model))


def _external(source: Path) -> bool:
    return source.with_name(f"{source.name}.data").exists()


def _converted(source: Path, target: Path, convert: Callable, by_path: bool = False) -> float:
    import onnx

    model = str(source) if by_path else onnx.load(source)
    start = time.perf_counter()
    model = convert(model, keep_io_types=True)
    seconds = time.perf_counter() - start
    beside = {"save_as_external_data": True, "location": f"{target.name}.data"} if _external(source) else {}
    onnx.save(model, target, **beside)
    return seconds


# Name, module that must be there, function. What onnxslim gives has float16 inputs and outputs; the rest keep float32.
TOOLS: dict[str, tuple[str, Callable[[Path, Path], float]]] = {
    "onnxconverter_common": ("onnxconverter_common", onnxconverter_common),
    "onnxruntime float16": ("onnxruntime.transformers", onnxruntime_float16),
    "onnxruntime OnnxModel": ("onnxruntime.transformers", onnxruntime_model),
    "modelopt f16": ("modelopt", modelopt),
    "modelopt autocast": ("modelopt", modelopt_autocast),
    "onnxslim (low io)": ("onnxslim", onnxslim),
    "polygraphy": ("polygraphy", polygraphy),
    "dovetail": ("dovetail", ours({"backends": ["gpu-fp16"]})),
    "dovetail min-cut": ("dovetail", ours({"backends": ["gpu-fp16"], "solver": "min-cut"})),
    "dovetail lean": ("dovetail", ours({"backends": ["gpu-fp16:policies=lean"], "solver": "min-cut"})),
}


if __name__ == "__main__":
    print("seconds", TOOLS[sys.argv[1]][1](Path(sys.argv[2]), Path(sys.argv[3])))
