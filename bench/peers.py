"""Public float16 converters on the same models as ours: Casts, SNR and seconds, in one run.

    python bench/peers.py MODEL... [--backend gpu-fp16] [--json]

Each tool has its defaults, keeps the types of inputs and outputs, and runs in a process of its own; one that is not
installed is left out. `casts` counts bodies too. SNR is that of the worst float output against the original, both run
whole by ONNX Runtime's CPU provider, on `MODEL.npz` where that is there and else on random inputs; `does not load` is
what ONNX Runtime says of the result. `checker` is onnx's, with types. `convert s` are the seconds from the opened model
on, after a first conversion of a model of one node. Saving is not counted, but for ours: it converts while it saves.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import alone, table


def ours(source: Path, target: Path, backend: str) -> float:
    import dovetail

    model = dovetail.open(source)
    start = time.perf_counter()
    dovetail.compile(model, [backend], verify=False).save(target.parent)
    return time.perf_counter() - start


def onnxconverter_common(source: Path, target: Path, backend: str) -> float:
    import onnx
    from onnxconverter_common import float16

    return _converted(source, target, lambda model: float16.convert_float_to_float16(model, keep_io_types=True), onnx)


def onnxruntime_transformers(source: Path, target: Path, backend: str) -> float:
    import onnx
    from onnxruntime.transformers import float16

    return _converted(source, target, lambda model: float16.convert_float_to_float16(model, keep_io_types=True), onnx)


def _converted(source: Path, target: Path, convert: Callable, onnx) -> float:
    model = onnx.load(source)
    start = time.perf_counter()
    model = convert(model)
    seconds = time.perf_counter() - start
    onnx.save(model, target)
    return seconds


FIRST = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x) => (float[2,2] y) { y = MatMul (x, x) }'
TOOLS = {
    "onnxconverter_common": onnxconverter_common,
    "onnxruntime.transformers": onnxruntime_transformers,
    "dovetail": ours,
}


def measured(tool: str, source: Path, backend: str) -> dict:
    """One row: a tool on a model."""
    import onnx.parser

    row = {"model": source.stem, "tool": tool, "casts": "", "SNR dB": "", "checker": "", "convert s": ""}
    with tempfile.TemporaryDirectory() as folder:
        target, first = Path(folder, "model.onnx"), Path(folder, "first.onnx")
        onnx.save(onnx.parser.parse_model(FIRST), first)
        try:
            TOOLS[tool](first, target, backend)
            row["convert s"] = TOOLS[tool](source, target, backend)
        except Exception as error:
            return row | {"SNR dB": f"fails: {_first_line(error)}"}
        nodes = _nodes(onnx.load(target, load_external_data=False).graph)
        row["casts"] = sum(node.op_type == "Cast" for node in nodes)
        try:
            onnx.checker.check_model(target, full_check=True)
            row["checker"] = "ok"
        except Exception:
            row["checker"] = "refuses"
        row["SNR dB"] = _snr(source, target)
    return row


def _snr(source: Path, target: Path) -> float | str:
    import dovetail
    import onnxruntime
    from dovetail.verification.compare import verify

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    sessions = []
    for path in (source, target):
        try:
            sessions.append(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))
        except Exception:
            return "does not load" if path == target else "the original does not load"
    names = [output.name for output in sessions[0].get_outputs()]
    runs = [lambda feeds, s=s: dict(zip(names, s.run(names, feeds), strict=True)) for s in sessions]
    data = source.with_suffix(".npz")
    try:
        return verify(dovetail.open(source), *runs, data if data.exists() else None).worst_snr_db
    except Exception as error:
        return f"does not run: {_first_line(error)}"


def _nodes(graph) -> Iterator:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _nodes(body)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:80].replace("|", "/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--backend", default="gpu-fp16", help="of ours")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tools = [tool for tool in TOOLS if importlib.util.find_spec(tool.partition(".")[0])]
    table([alone(measured, tool, model, options.backend) for model in options.models for tool in tools], options.json)


if __name__ == "__main__":
    main()
