"""Accuracy and speed on trained nets with real inputs, against OpenVINO's own bfloat16 mode and float16 converters.

    python bench/trained.py --wheels FOLDER [--nets NAME ...] [--skip-speed] [--only bfloat16|float16] [--repeat 60]
                            [--cpu-time] [--markdown] [--json FILE] [--read FILE] [--python modelopt=PYTHON]

The nets ship in wheels on the package index (`trained_nets/`); wheels that FOLDER lacks are downloaded with pip. Inputs
are rendered pages, photographs, spoken sentences (espeak-ng where there is one), files of this machine and sentences,
prepared as the packages do. State is fed back as the application does, by each candidate its own.

The first table has a row per float output: SNR in dB against ONNX Runtime in float32 over all inputs, of OpenVINO's own
bfloat16 mode on the same file, of cpu-bf16 without and with `data`, of gpu-fp16 by default, lean with min-cut, the same
with `data`, and of the best public converter; float16 is computed on this CPU with every result rounded. `data` are
other inputs of the same kind. A star is a missed goal: cpu-bf16 at least OpenVINO's mode less 0.5 dB, or 45 dB;
gpu-fp16 at least the best converter less 0.5 dB. -inf is a result with infinities or NaNs that float32 does not have.
Where OpenVINO's mode does not take the file, 45 dB count. The second table has a row per net: the time of
`CompiledModel.run`, and of its region alone where there is one, over that of OpenVINO's mode, the median of
alternating pairs on one input (goal: 1.03).

Each net runs in a process of its own. Needs pillow, scipy and, for FLAN-T5, tokenizers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import traceback
from pathlib import Path

import numpy as np
from converters import TOOLS, installed
from measure import table, within
from trained_nets import candidates, judging
from trained_nets.catalog import NETS as TRAINED
from trained_nets.wheels import Wheels

NETS = {net.name: net for net in TRAINED}
NATIVE, OURS, OURS_DATA = "OpenVINO bf16", "cpu-bf16", "cpu-bf16 data"
HALF, LEAN, LEAN_DATA = "gpu-fp16", "gpu-fp16 lean", "gpu-fp16 lean data"
CONVERTERS = tuple(tool for tool in TOOLS if not tool.startswith("dovetail"))
GOOD_ENOUGH, TOLERANCE, SLOWER = 45.0, 0.5, 1.03
MEASURED_ON = 16  # inputs that are given as `data`


def measured(name: str, options: argparse.Namespace) -> dict:
    """Everything about one net."""
    np.seterr(all="ignore")
    net, wheels, failures, notes = NETS[name], Wheels(options.wheels), {}, {}
    model = wheels.file(net.wheel, net.path)
    streams = net.streams(wheels)
    test, others = streams[0::2], streams[1::2]
    float32 = candidates.onnxruntime_float32(model)
    expected = judging.computed(float32.run, test, net.carried)
    data = judging.complete(others, judging.computed(float32.run, others, net.carried), net.carried)
    data = data[:: max(1, len(data) // MEASURED_ON)][:MEASURED_ON]
    lean = {"policies": "lean", "solver": "min-cut"}
    makers = {}
    if options.only != "float16":
        makers |= {
            NATIVE: lambda: candidates.openvino_mode(model, expected[0]),
            OURS: lambda: candidates.ours(model, "cpu-bf16"),
            OURS_DATA: lambda: candidates.ours(model, "cpu-bf16", data=data),
        }
    if options.only != "bfloat16":
        makers |= {
            HALF: lambda: candidates.ours(model, "gpu-fp16"),
            LEAN: lambda: candidates.ours(model, "gpu-fp16:policies=lean", solver=lean["solver"]),
            LEAN_DATA: lambda: candidates.ours(model, "gpu-fp16:policies=lean", solver=lean["solver"], data=data),
        }
        pythons, folder = dict(pair.split("=", 1) for pair in options.python), wheels.scratch(f"converted/{name}")
        for tool in CONVERTERS:
            python = pythons.get(TOOLS[tool].module.partition(".")[0], sys.executable)
            if not installed(tool, python):
                continue
            makers[tool] = lambda tool=tool, python=python: candidates.converted(tool, model, folder, python)
    quality, seconds, speed = {}, {}, {}
    kept: dict[str, candidates.Candidate] = {}
    for candidate, make in makers.items():
        start = time.perf_counter()
        try:
            made = make()
            seconds[candidate] = time.perf_counter() - start
            found = judging.computed(made.run, test, net.carried)
            quality[candidate] = {output: _figures(each) for output, each in judging.qualities(expected, found).items()}
            agreed = judging.agreement(expected, found)
            notes[candidate] = [*made.notes, *(f"{output}: {share:.1%} equal" for output, share in agreed.items())]
            if candidate in (NATIVE, OURS):
                kept[candidate] = made
        except Exception as error:  # a candidate that fails is a finding
            failures[candidate] = f"{type(error).__name__}: {_message(error)}"
            if options.traceback:
                traceback.print_exc()
    if not options.skip_speed and OURS in kept:
        feeds = test[0][0]
        against = kept.get(NATIVE)
        clock = time.thread_time if options.cpu_time else time.perf_counter
        speed = _speed(kept[OURS], against, float32, feeds, options.repeat, clock)
    return {
        "net": name, "about": net.about, "samples": sum(map(len, test)), "quality": quality,
        "compile s": seconds, "speed": speed, "failures": failures, "notes": notes,
    }  # fmt: skip


def _message(error: Exception) -> str:
    """What matters of it: OpenVINO says last which operators it does not know, and others say it first."""
    text = " ".join(str(error).split())
    return text if len(text) < 400 else f"{text[:200]} ... {text[-200:]}"


def _speed(made, native, float32, feeds: dict, rounds: int, clock: judging.Clock) -> dict:
    found = {}
    if native is not None:
        ours, theirs, ratio = judging.paired(made.run, native.run, feeds, rounds, clock)
        found |= {"OpenVINO bf16 ms": theirs * 1e3, "cpu-bf16 ms": ours * 1e3, "run / OpenVINO": ratio}
        if made.region is not None:
            found["region / OpenVINO"] = judging.paired(made.region, native.run, feeds, rounds, clock)[2]
    _, theirs, ratio = judging.paired(made.run, float32.run, feeds, rounds, clock)
    return found | {"ONNX Runtime float32 ms": theirs * 1e3, "run / ONNX Runtime": ratio}


def _figures(quality: judging.Quality) -> dict:
    difference = quality.difference
    return {
        "snr": difference.snr_db, "cosine": difference.cosine, "broken": difference.broken,
        "same": quality.same / quality.answers if quality.answers else None,
    }  # fmt: skip


def accuracy_rows(result: dict) -> list[dict]:
    """A row per output, with stars where a goal is missed."""
    quality, rows = result["quality"], []
    outputs = next(iter(quality.values()), {})
    for output in outputs:
        snr = {who: figures[output]["snr"] for who, figures in quality.items()}
        tools = {tool: snr[tool] for tool in CONVERTERS if tool in snr}
        best = max(tools, key=lambda tool: tools[tool], default=None)
        row = {"net": result["net"], "output": output[:24]}
        for who in (NATIVE, OURS, OURS_DATA, HALF, LEAN, LEAN_DATA):
            floor = -math.inf
            if who in (OURS, OURS_DATA):
                floor = min(snr.get(NATIVE, math.inf) - TOLERANCE, GOOD_ENOUGH)
            elif who in (HALF, LEAN, LEAN_DATA) and best:
                floor = tools[best] - TOLERANCE
            row[who] = _decibels(snr.get(who), floor) if who in snr else _failed(result, who)
        row["best converter"] = f"{_decibels(tools[best])} ({best})" if best else ""
        if output in NETS[result["net"]].classes:
            for who in (NATIVE, OURS, HALF):
                same = quality.get(who, {}).get(output, {}).get("same")
                row[f"same answer, {who}"] = "" if same is None else f"{100 * same:.1f} %"
        else:
            row |= dict.fromkeys((f"same answer, {who}" for who in (NATIVE, OURS, HALF)), "")
        rows.append(row)
    return rows


def _failed(result: dict, who: str) -> str:
    return "fails" if who in result["failures"] else ""


def _decibels(snr: float, floor: float = -math.inf) -> str:
    return f"{snr:.1f}{'' if snr >= floor and snr != -math.inf else ' *'}"


def speed_row(result: dict) -> dict:
    """The row of a net."""
    speed, row = result["speed"], {"net": result["net"]}
    for key in ("ONNX Runtime float32 ms", "OpenVINO bf16 ms", "cpu-bf16 ms", "run / ONNX Runtime", "run / OpenVINO",
                "region / OpenVINO"):  # fmt: skip
        row[key] = speed.get(key, "")
        if key == "run / OpenVINO" and key in speed:
            row[key] = f"{speed[key]:.3f}{'' if speed[key] <= SLOWER else ' *'}"
    return row | {"compile s": result["compile s"].get(OURS, "")}


def summary(results: list[dict]) -> str:
    """One line of what was reached."""
    rows = [row for result in results for row in accuracy_rows(result)]
    speeds = [result["speed"]["run / OpenVINO"] for result in results if "run / OpenVINO" in result["speed"]]
    parts = [f"{len(results)} nets, {len(rows)} outputs"]
    for who in (OURS, OURS_DATA, HALF, LEAN, LEAN_DATA):
        missed = sum("*" in row[who] or row[who] == "fails" for row in rows)
        parts.append(f"{who} misses its goal on {missed}")
    if speeds:
        parts.append(f"cpu-bf16 is slower than {SLOWER} on {sum(ratio > SLOWER for ratio in speeds)} of {len(speeds)}")
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"), help="where the wheels are or shall be")
    parser.add_argument("--nets", nargs="+", default=list(NETS), metavar="NAME", choices=NETS)
    parser.add_argument("--skip-speed", action="store_true")
    parser.add_argument("--only", choices=("bfloat16", "float16"))
    parser.add_argument("--repeat", type=int, default=60, help="rounds of each pair")
    parser.add_argument("--cpu-time", action="store_true", help="on one thread, counting its own seconds")
    parser.add_argument("--read", nargs="+", type=Path, help="print the tables of what --json wrote; measure nothing")
    parser.add_argument("--python", action="append", default=[], metavar="PACKAGE=PYTHON")
    parser.add_argument("--limit", type=float, default=900, help="seconds that one net may take")
    parser.add_argument("--markdown", action="store_true", help="tables only, without progress")
    parser.add_argument("--json", type=Path, help="also write everything there")
    parser.add_argument("--list", action="store_true", help="name the nets")
    parser.add_argument("--failures", action="store_true", help="also say what the converters that failed said")
    parser.add_argument("--traceback", action="store_true", help="of candidates that fail")
    options = parser.parse_args()
    options.wheels = options.wheels.absolute()
    if options.list:
        table([{"net": net.name, "wheel": net.wheel, "what": net.about} for net in NETS.values()])
        return
    if options.cpu_time:
        os.environ["TRAINED_THREADS"] = "1"
    results = _read(options.read or ())
    for name in options.nets if not options.read else ():
        results.append(_alone(name, options))
        if not options.markdown:
            print(json.dumps(results[-1]["failures"] or results[-1]["speed"]), file=sys.stderr)
            for row in accuracy_rows(results[-1]):
                print("  ".join(f"{key}={value}" for key, value in row.items() if value != ""), file=sys.stderr)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))
    table([row for result in results for row in accuracy_rows(result)])
    print()
    if any(result["speed"] for result in results):
        table([speed_row(result) for result in results])
        print()
    for result in results:
        for who, said in result["failures"].items():
            if options.failures or who not in CONVERTERS:
                print(f"{result['net']}, {who}: {said}")
    print(f"\n{summary(results)}")


def _read(files) -> list[dict]:
    """What earlier runs wrote; of a net in several files, all candidates, and of one in several files, the last."""
    found: dict[str, dict] = {}
    for result in (result for file in files for result in json.loads(file.read_text())):
        earlier = found.get(result["net"])
        if earlier is not None:
            for who in result["quality"]:
                earlier["failures"].pop(who, None)
            merged = ("quality", "compile s", "speed", "failures", "notes")
            result |= {key: earlier[key] | result[key] for key in merged}
        found[result["net"]] = result
    return [found[name] for name in NETS if name in found]


def _alone(name: str, options: argparse.Namespace) -> dict:
    """A net in a process of its own, or why there is nothing of it."""
    result, why = within(options.limit, measured, name, options)
    if result is not None:
        return result
    return {
        "net": name,
        "about": NETS[name].about,
        "samples": 0,
        "quality": {},
        "compile s": {},
        "speed": {},
        "notes": {},
        "failures": {"all": why},
    }


if __name__ == "__main__":
    main()
