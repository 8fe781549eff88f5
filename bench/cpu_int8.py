"""Speed and accuracy of cpu-int8 in OpenVINO and ONNX Runtime, beside float32, bfloat16, NNCF and quantize_static.

    python bench/cpu_int8.py [resnet50 bert_base] [--nncf PYTHON] [--backend cpu-int8] [--rounds 15] [--folder FOLDER]

The nets are those of `int8_nets.py`, with random weights; 16 inputs calibrate every tool, 6 others are judged.
NNCF runs in a Python of its own, and gets the file after ONNX Runtime's preprocessing, as quantize_static does; its
files run in OpenVINO with the hint `f32` and with that of the machine. With `--folder`, the tools' files are kept there
and used again.

Times are CPU time of one thread, the least of runs that take turns; the ratio is the median of pairs with the baseline
(OpenVINO, float32): on a machine that others use, no clock on the wall is fair.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import int8_nets
import numpy as np
import onnx
import quantizers
from measure import table

Feeds = dict[str, np.ndarray]
Run = Callable[[Feeds], np.ndarray]
CALIBRATED_ON, JUDGED = 16, 6
METHODS, PRESETS = ("MinMax",), ("performance", "mixed")


def in_openvino(path: Path, hint: str | None) -> Run:
    """OpenVINO on a file, as its users run it."""
    import openvino

    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1}
    if hint:
        config["INFERENCE_PRECISION_HINT"] = hint
    request = openvino.Core().compile_model(str(path), "CPU", config).create_infer_request()
    return lambda feeds: np.array(request.infer(feeds).to_tuple()[0])


def in_onnxruntime(path: Path) -> Run:
    """ONNX Runtime on a file, as its users run it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)[0]


def in_our_engine(path: Path, name: str) -> Run:
    """One of our engines on a whole file, with what it executes."""
    import dovetail
    from dovetail.plugin import RegionModel

    model = dovetail.open(path)
    engine = dovetail.load_plugins().registry.engine[name]()
    session = engine.load(RegionModel(model), {"threads": 1, "spin": False})
    output = model.graph.outputs[0].name
    return lambda feeds: session.run(feeds)[output]


def candidates(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Run]:
    """Everything that computes one net, by what the table calls it."""
    make, inputs = int8_nets.NETS[name]
    data, source = inputs(CALIBRATED_ON, 7), folder / f"{name}.onnx"
    if not source.exists():
        onnx.save(make(), source)
    runs = {
        "float32, OpenVINO": in_openvino(source, "f32"),
        "float32, ONNX Runtime": in_onnxruntime(source),
        "OpenVINO's bfloat16 mode": in_openvino(source, "bf16"),
    }
    prepared = folder / "prepared.onnx"
    if not prepared.exists():
        prepared = quantizers.prepared(source, folder)
    for preset in PRESETS if options.nncf else ():
        path = folder / f"nncf_{preset}.onnx"
        if not path.exists():
            quantizers.nncf(prepared, data, folder, preset, options.nncf)
        runs[f"NNCF {preset}, OpenVINO f32"] = in_openvino(path, "f32")
        runs[f"NNCF {preset}, OpenVINO default"] = in_openvino(path, None)
    for method in METHODS:
        path = folder / f"static_{method}.onnx"
        if not path.exists():
            quantizers.quantize_static(prepared, data, folder, method, True)
        runs[f"quantize_static {method}, ONNX Runtime"] = in_onnxruntime(path)
    ours = folder / options.backend.replace(":", "_").replace("=", "_").replace(",", "_") / "model.onnx"
    if not ours.exists():
        quantizers.ours(source, data, ours.parent, options.backend)
    for engine in ("openvino-cpu-int8", "onnxruntime-cpu"):
        runs[f"{options.backend}, {engine}"] = in_our_engine(ours, engine)
    runs[f"{options.backend}, ONNX Runtime on the file"] = in_onnxruntime(ours)
    return runs


def rows(name: str, folder: Path, options: argparse.Namespace) -> list[dict]:
    """A row per candidate."""
    runs, judged = candidates(name, folder, options), int8_nets.NETS[name][1](JUDGED, 99)
    expected = [runs["float32, ONNX Runtime"](feeds) for feeds in judged]
    times: dict[str, list[float]] = {who: [] for who in runs}
    for run in runs.values():
        run(judged[0])
    for _ in range(options.rounds):
        for who, run in runs.items():
            start = time.process_time()
            run(judged[0])
            times[who].append(time.process_time() - start)
    base = next(iter(times.values()))
    found = []
    for who, run in runs.items():
        ratio = statistics.median(one / other for one, other in zip(base, times[who], strict=True))
        snr = _decibels(expected, [run(feeds) for feeds in judged])
        found.append({
            "net": name, "what": who, "CPU ms": f"{min(times[who]) * 1e3:.1f}", "times float32": f"{ratio:.2f}",
            "SNR": "" if np.isinf(snr) else f"{snr:.1f}",
        })  # fmt: skip
    return found


def _decibels(expected: list[np.ndarray], found: list[np.ndarray]) -> float:
    signal = sum(float((array.astype(np.float64) ** 2).sum()) for array in expected)
    noise = sum(
        float(((right.astype(np.float64) - given) ** 2).sum()) for right, given in zip(expected, found, strict=True)
    )
    return 10 * np.log10(signal / noise) if noise else np.inf


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", default=list(int8_nets.NETS), metavar="NET")
    parser.add_argument("--nncf", metavar="PYTHON", help="a Python that has NNCF")
    parser.add_argument("--backend", default="cpu-int8")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, help="where the tools' files are kept")
    options = parser.parse_args()
    found = []
    for name in options.nets:
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.folder / name if options.folder else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            found += rows(name, folder, options)
    table(found)


if __name__ == "__main__":
    main()
