"""Public converters to narrow floats, and ours: a function each, from a file to a file, giving seconds of conversion.

    python bench/converters.py TOOL SOURCE TARGET [--bfloat16] [--low-io]

does one conversion and prints the seconds; that is how tools are called which need an environment of their own.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wanted:
    """What a conversion shall give.

    Attributes:
        bfloat16: bfloat16 instead of float16.
        low_io: Inputs and outputs in the narrow type, too.
    """

    bfloat16: bool = False
    low_io: bool = False


Convert = Callable[[Path, Path, Wanted], float]


@dataclass(frozen=True)
class Tool:
    """A converter.

    Attributes:
        module: The module that must be there.
        convert: From a file to a file.
        bfloat16: Whether it can make bfloat16.
        io: What it can do of inputs and outputs: `keep`, `low`, or `both`.
    """

    module: str
    convert: Convert
    bfloat16: bool = False
    io: str = "both"

    def can(self, wanted: Wanted) -> bool:
        """Whether it has that conversion at all."""
        return (self.bfloat16 or not wanted.bfloat16) and self.io in ("both", "low" if wanted.low_io else "keep")


def ours(options: str = "", **request) -> Convert:
    """Ours with some options; saving is counted, because it is where weights are converted."""

    def convert(source: Path, target: Path, wanted: Wanted) -> float:
        import dovetail

        model = dovetail.open(source)
        backend = ("cpu-bf16" if wanted.bfloat16 else "gpu-fp16") + options
        start = time.perf_counter()
        result = dovetail.compile(model, [backend], **request, keep_io_types=not wanted.low_io, verify=False)
        result.save(target.parent)
        return time.perf_counter() - start

    return convert


def onnxconverter_common(source: Path, target: Path, wanted: Wanted) -> float:
    from onnxconverter_common import float16

    by_path = float16.convert_float_to_float16_model_path if _external(source) else None
    return _converted(source, target, wanted, by_path or float16.convert_float_to_float16, bool(by_path))


def onnxruntime_float16(source: Path, target: Path, wanted: Wanted) -> float:
    from onnxruntime.transformers import float16

    return _converted(source, target, wanted, float16.convert_float_to_float16, _external(source))


def onnxruntime_model(source: Path, target: Path, wanted: Wanted) -> float:
    from onnxruntime.transformers.onnx_model import OnnxModel

    def convert(model, keep_io_types):
        wrapped = OnnxModel(model)
        wrapped.convert_float_to_float16(keep_io_types=keep_io_types)
        return wrapped.model

    return _converted(source, target, wanted, convert)


def modelopt(source: Path, target: Path, wanted: Wanted) -> float:
    from modelopt.onnx.autocast import convert_to_f16

    low = "bf16" if wanted.bfloat16 else "fp16"
    return _converted(
        source, target, wanted, lambda model, keep_io_types: convert_to_f16(model, low, keep_io_types=keep_io_types)
    )


def modelopt_autocast(source: Path, target: Path, wanted: Wanted) -> float:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    data = source.with_suffix(".npz")

    def convert(path, keep_io_types):
        calibration = str(data) if data.exists() else None
        low = "bf16" if wanted.bfloat16 else "fp16"
        return convert_to_mixed_precision(path, low, keep_io_types=keep_io_types, calibration_data=calibration)

    return _converted(source, target, wanted, convert, True)


def onnxslim(source: Path, target: Path, wanted: Wanted) -> float:
    import onnxslim

    return _converted(source, target, wanted, lambda model, keep_io_types: onnxslim.slim(model, dtype="fp16"))


def polygraphy(source: Path, target: Path, wanted: Wanted) -> float:
    from polygraphy.backend.onnx import convert_to_fp16

    return _converted(source, target, wanted, lambda model, keep_io_types: convert_to_fp16(model))


def _external(source: Path) -> bool:
    return source.with_name(f"{source.name}.data").exists()


def _converted(source: Path, target: Path, wanted: Wanted, convert: Callable, by_path: bool = False) -> float:
    import onnx

    model = str(source) if by_path else onnx.load(source)
    start = time.perf_counter()
    model = convert(model, keep_io_types=not wanted.low_io)
    seconds = time.perf_counter() - start
    beside = {"save_as_external_data": True, "location": f"{target.name}.data"} if _external(source) else {}
    onnx.save(model, target, **beside)
    return seconds


TOOLS = {
    "onnxconverter_common": Tool("onnxconverter_common", onnxconverter_common),
    "onnxruntime float16": Tool("onnxruntime.transformers", onnxruntime_float16),
    "onnxruntime OnnxModel": Tool("onnxruntime.transformers", onnxruntime_model),
    "modelopt f16": Tool("modelopt", modelopt, bfloat16=True),
    "modelopt autocast": Tool("modelopt", modelopt_autocast, bfloat16=True),
    "onnxslim": Tool("onnxslim", onnxslim, io="low"),
    "polygraphy": Tool("polygraphy", polygraphy, io="keep"),
    "dovetail": Tool("dovetail", ours(), bfloat16=True),
    "dovetail min-cut": Tool("dovetail", ours(solver="min-cut"), bfloat16=True),
    "dovetail lean": Tool("dovetail", ours(":policies=lean", solver="min-cut"), bfloat16=True),
}


def installed(tool: str, python: str) -> bool:
    """Whether a tool is there for an interpreter."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({TOOLS[tool].module!r}) is None)"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--low-io", action="store_true")
    options = parser.parse_args()
    wanted = Wanted(options.bfloat16, options.low_io)
    print("seconds", TOOLS[options.tool].convert(options.source, options.target, wanted))


if __name__ == "__main__":
    main()
