"""Accuracy and time of `compile --backend cpu-int8` beside quantize_static and NNCF, on trained nets and real inputs.

    python bench/int8_trained.py --wheels FOLDER [--nets NAME ...] [--nncf PYTHON] [--aimet PYTHON] [--most 12]
                                 [--json FILE] [--read FILE ...] [--backend cpu-int8] [--skip-peers]

The nets and their inputs are those of `trained.py`. Every other stream calibrates, the others are judged, `--most` of
each. Each tool is used as its documentation shows first: `dovetail.compile` with data, which keeps a part of it to
judge; quantize_static after its preprocessing, in ONNX Runtime, with the four settings of `STATIC`; NNCF's presets, in
OpenVINO; AIMET's defaults, in ONNX Runtime. The SNR is that of the worst float output over all judged inputs. The
others are judged by what their files say, without optimizations: on x86 CPUs without VNNI, sums of 8 bits saturate in
the kernels that they are timed with. A star is a missed goal: worse than the best of the others by more than 1 dB, and
below 45 dB. Times are those of a run, relative to floats in the faster of ONNX Runtime and OpenVINO, the median of
alternating pairs.

Each net runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import quantizers
from measure import table, within
from trained_nets import candidates, judging
from trained_nets.catalog import NETS as TRAINED
from trained_nets.wheels import Wheels

BY_NAME = {net.name: net for net in TRAINED}
DECIBELS, GOOD_ENOUGH, TURNS = 1.0, 45.0, 15
OURS = "ours"
STATIC = {
    "by tensor": {"per_channel": False},
    "by channel": {"per_channel": True},
    "7 bits": {"per_channel": True, "reduce_range": True},
    "int8": {"per_channel": True, "activations": "QInt8"},
}
DECISIONS = ("costly-nodes", "better-scales")


def in_openvino(path: Path) -> candidates.Run:
    """OpenVINO on a file in float32 and integers, as its users run it."""
    import openvino

    config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY",
              "INFERENCE_NUM_THREADS": candidates.THREADS}  # fmt: skip
    compiled = openvino.Core().compile_model(str(path), "CPU", config)
    names = [output.get_any_name() for output in compiled.outputs]
    known = {name for port in compiled.inputs for name in port.get_names()}
    request = compiled.create_infer_request()

    def run(feeds: candidates.Feeds) -> dict[str, np.ndarray]:
        given = {name: array for name, array in feeds.items() if name in known}
        return {name: np.array(array) for name, array in zip(names, request.infer(given).to_tuple(), strict=True)}

    return run


def as_written(path: Path) -> candidates.Run:
    """ONNX Runtime without optimizations: QDQ is computed in floats, and no sum saturates."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = candidates.THREADS, 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


def measured(name: str, options: argparse.Namespace) -> dict:
    """Everything about one net."""
    np.seterr(all="ignore")
    import dovetail

    net, wheels, failures = BY_NAME[name], Wheels(options.wheels), {}
    model = wheels.file(net.wheel, net.path)
    streams = net.streams(wheels)
    others, test = streams[0::2][: options.most], streams[1::2][: options.most]
    float32 = candidates.onnxruntime_float32(model)
    expected = judging.computed(float32.run, test, net.carried)
    data = judging.complete(others, judging.computed(float32.run, others, net.carried), net.carried)
    data = data[:: max(1, len(data) // options.most)][: options.most]
    quality, seconds, runs, notes = {}, {}, {"float32, ONNX Runtime": float32.run}, []

    def ours() -> tuple[candidates.Run, candidates.Run]:
        compiled = dovetail.compile(model, options.backend, data=data)
        notes.extend(remark.reason for remark in compiled.plan.remarks if remark.rule in DECISIONS)
        notes.append(f"said {compiled.verification.worst_snr_db}")
        compiled.options["threads"] = candidates.THREADS
        run = compiled.executor().run
        return run, run

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        makers = {OURS: ours, **({} if options.skip_peers else _peers(model, data, folder, options))}
        for who, make in makers.items():
            start = time.perf_counter()
            try:
                judged, run = make()
                seconds[who] = time.perf_counter() - start
                found = judging.computed(judged, test, net.carried)
                quality[who] = {
                    output: each.difference.snr_db for output, each in judging.qualities(expected, found).items()
                }
                runs[who] = run
            except Exception as error:  # a tool that fails is a finding
                failures[who] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        try:
            runs["float32, OpenVINO"] = in_openvino(model)
            runs["float32, OpenVINO"](test[0][0])
        except Exception as error:
            runs.pop("float32, OpenVINO", None)
            failures["float32, OpenVINO"] = str(error)[:200]
        times = _times(runs, test[0][0])
    return {"net": name, "samples": len(data), "quality": quality, "seconds": seconds, "times": times,
            "failures": failures, "notes": notes}  # fmt: skip


def _peers(model: Path, data: list, folder: Path, options: argparse.Namespace) -> dict:
    try:
        prepared = quantizers.prepared(model, folder)
    except Exception as error:  # some files are refused by the preprocessing
        print(f"{model.name} cannot be prepared: {str(error)[:200]}", file=sys.stderr)
        prepared = model

    def static(settings: dict) -> tuple[candidates.Run, candidates.Run]:
        path = quantizers.quantize_static(prepared, data, folder, "MinMax", **settings)
        return as_written(path), candidates.onnxruntime_float32(path).run

    def nncf(preset: str) -> tuple[candidates.Run, candidates.Run]:
        path = quantizers.nncf(prepared, data, folder, preset, options.nncf)
        return as_written(path), in_openvino(path)

    def aimet() -> tuple[candidates.Run, candidates.Run]:
        path = quantizers.aimet(prepared, data, folder, options.aimet)
        return as_written(path), candidates.onnxruntime_float32(path).run

    makers = {f"static {what}": partial(static, settings) for what, settings in STATIC.items()}
    makers |= {f"NNCF {preset}": partial(nncf, preset) for preset in (quantizers.NNCF if options.nncf else ())}
    return makers | ({"AIMET": aimet} if options.aimet else {})


def _times(runs: dict[str, candidates.Run], feeds: dict) -> dict[str, list[float]]:
    """Seconds of alternating runs of each, in turns, at most as many as fit into twenty seconds."""
    times: dict[str, list[float]] = {who: [] for who in runs}
    begun = time.perf_counter()
    for _ in range(TURNS):
        for who, run in runs.items():
            run(feeds)
            start = time.perf_counter()
            run(feeds)
            times[who].append(time.perf_counter() - start)
        if time.perf_counter() - begun > 20:
            break
    return times


def worst(quality: dict[str, float]) -> float:
    """The SNR of the worst float output."""
    return min(quality.values(), default=math.inf)


def row(result: dict) -> dict:
    """The row of a net."""
    quality = {who: worst(each) for who, each in result["quality"].items()}
    peers = {who: value for who, value in quality.items() if who != OURS}
    best = max(peers, key=peers.__getitem__, default="")
    missed = OURS not in quality or bool(best) and quality[OURS] < min(peers[best] - DECIBELS, GOOD_ENOUGH)
    found = {"net": result["net"], "inputs": result.get("samples", 0)}
    found["cpu-int8 dB"] = f"{quality[OURS]:.1f}{' *' if missed else ''}" if OURS in quality else "fails *"
    found["best of the others"] = f"{peers[best]:.1f} ({best})" if best else "all fail"
    times = result.get("times", {})
    floats = [who for who in times if who.startswith("float32")]
    fastest = min(floats, key=lambda who: float(np.median(times[who])), default="")
    for who, head in ((OURS, "time / float32"), (best, "of the best other")):
        pairs = [one / other for one, other in zip(times.get(who, ()), times.get(fastest, ()), strict=False)]
        found[head] = f"{np.median(pairs):.2f}" if pairs else ""
    found["compile s"] = f"{result['seconds'].get(OURS, math.nan):.0f}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"), help="where the wheels are or shall be")
    parser.add_argument("--nets", nargs="*", default=list(BY_NAME), metavar="NAME", choices=BY_NAME)
    parser.add_argument("--nncf", metavar="PYTHON", help="a Python that has NNCF")
    parser.add_argument("--aimet", metavar="PYTHON", help="a Python that has aimet-onnx")
    parser.add_argument("--backend", default="cpu-int8")
    parser.add_argument("--most", type=int, default=12, help="inputs to calibrate on, and streams to judge")
    parser.add_argument("--skip-peers", action="store_true")
    parser.add_argument("--limit", type=float, default=900, help="seconds that one net may take")
    parser.add_argument("--json", type=Path, help="also write everything there, after each net")
    parser.add_argument("--read", nargs="+", type=Path, help="print the table of what --json wrote; measure nothing")
    options = parser.parse_args()
    options.wheels = options.wheels.absolute()
    results: dict[str, dict] = {}
    for file in options.read or ():
        for each in json.loads(file.read_text()):
            earlier = results.get(each["net"], {})
            merged = {key: earlier.get(key, {}) | each[key] for key in ("quality", "seconds", "failures")}
            results[each["net"]] = earlier | each | merged
    for name in [] if options.read else options.nets:
        result = _alone(name, options)
        results[name] = result
        print(row(result), result["failures"] or "", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(list(results.values()), indent=1))
    table([row(result) for result in results.values()])
    for result in results.values():
        for said in result.get("notes", ()):
            print(f"{result['net']}: {said}")
        for who, said in result["failures"].items():
            print(f"{result['net']}, {who}: {said}")


def _alone(name: str, options: argparse.Namespace) -> dict:
    """A net in a process of its own, or why there is nothing of it."""
    result, why = within(options.limit, measured, name, options)
    if result is not None:
        return result
    return {"net": name, "samples": 0, "quality": {}, "seconds": {}, "times": {}, "notes": [], "failures": {"all": why}}


if __name__ == "__main__":
    main()
