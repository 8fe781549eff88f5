"""`dovetail tune` on trained nets: the winner against every single peer that meets the same goal.

    python bench/tune.py --wheels FOLDER --results FOLDER [--nets NAME ...] [--min-snr 30] [--threads 1] [--budget 90]
                         [--pairs 40] [--nncf PYTHON] [--models FILE ...]

For each net, `dovetail.tune` chooses a plan on half of 16 real inputs and judges it on the others. Then the winner, as
its folder runs in `dovetail.InferenceSession`, takes turns with peers that know nothing of Dovetail, on the same file
and input: ONNX Runtime on the file itself and on quantize_static's file, OpenVINO in float32, in its own bfloat16 mode
and, given a Python that has it, on NNCF's file. All are loaded anew for each of three measurements, because the place
of their memory decides some per cent. Peers that miss the goal on the judging half do not count; what is exact is what
the host computes, whose integers do not saturate. The table has the median of the paired ratios of the winner to the
fastest peer that counts, with its 95 % interval (goal: 1.03 at most), the certificate, and the ratio to each peer.

With `--models`, the rows are of these ONNX files instead, each with an `.npz` of one set of inputs beside it; other
inputs are drawn like it: floats with its mean and deviation, integers between its least and largest.

Each net runs in a process of its own, whose row is kept as RESULTS/NET.json; a net that has one is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import re
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import dovetail
import numpy as np
import quantizers
from dovetail.passes import Context, Request
from dovetail.plugin import load_plugins
from dovetail_tune.statistics_of_pairs import Ratio, ratio_of
from dovetail_verify.runners import reference_runner
from measure import table
from trained import NETS
from trained_nets import candidates
from trained_nets.wheels import Wheels

Feeds = dict[str, np.ndarray]
Run = Callable[[Feeds], dict[str, np.ndarray]]
Loader = Callable[[Path, list[str]], Run]
"""Loads a file, given the names of the model's outputs."""
INPUTS, TURN, MEASUREMENTS = 16, 0.05, 3
SLOWER, FASTER = 1.03, 0.95  # of the fastest peer: more is a miss, at most so much is a gain
PEERS = ("ONNX Runtime", "OpenVINO f32", "OpenVINO bf16", "quantize_static", "NNCF")


def openvino_float32(model: Path, outputs: list[str]) -> Run:
    """OpenVINO on a file, in float32; what the file has in integers, it computes so."""
    import openvino

    config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    config["INFERENCE_NUM_THREADS"] = candidates.THREADS
    compiled = openvino.Core().compile_model(str(model), "CPU", config)
    request = compiled.create_infer_request()
    names = [output.get_any_name() for output in compiled.outputs]
    known = {name for port in compiled.inputs for name in port.get_names()}

    def run(feeds: Feeds) -> dict[str, np.ndarray]:
        # An input that nothing reads has no port.
        given = {name: array for name, array in feeds.items() if name in known}
        return dict(zip(names, map(np.array, request.infer(given).to_tuple()), strict=True))

    return run


def winner_of(folder: Path) -> Run:
    """A saved result, as programs for ONNX Runtime run it."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = candidates.THREADS, 4
    session = dovetail.InferenceSession(folder, settings)
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


def onnxruntime_itself(model: Path, outputs: list[str]) -> Run:
    """ONNX Runtime on a file."""
    return candidates.onnxruntime_float32(model).run


def openvino_bfloat16(model: Path, outputs: list[str]) -> Run:
    """OpenVINO's own bfloat16 mode on a file."""
    return candidates.openvino_mode(model, outputs).run


def peers_of(model: Path, inputs: list[Feeds], folder: Path, nncf: str | None) -> dict[str, Callable[[], Run]]:
    """What loads every peer that takes the file; why another does not is printed."""
    outputs = list(onnxruntime_itself(model, [])(inputs[0]))
    data = inputs[0::2]  # what `tune` calibrates on

    def static() -> Path:
        return quantizers.quantize_static(quantizers.prepared(model, folder), data, folder, "MinMax", True)

    def by_nncf() -> Path:
        assert nncf is not None
        return quantizers.nncf(quantizers.prepared(model, folder), data, folder, "mixed", nncf, 300)

    loaders: dict[str, tuple[Loader, Callable[[], Path]]] = {
        "ONNX Runtime": (onnxruntime_itself, lambda: model),
        "OpenVINO f32": (openvino_float32, lambda: model),
        "OpenVINO bf16": (openvino_bfloat16, lambda: model),
        "quantize_static": (onnxruntime_itself, static),
    } | ({"NNCF": (openvino_float32, by_nncf)} if nncf else {})
    peers: dict[str, Callable[[], Run]] = {}
    for peer, (load, make) in loaders.items():
        try:
            path = make()
            # In a process of its own first, because an engine may crash.
            process = _CONTEXT.Process(target=_run_once, args=(load, path, outputs, inputs[1], candidates.THREADS))
            process.start()
            process.join()
            if process.exitcode:
                raise RuntimeError(f"its process ended with {process.exitcode}")
            load(path, outputs)(inputs[1])
        except Exception as error:
            print("   ", peer, "does not take it:", str(error).strip().splitlines()[-1][:200])
        else:
            peers[peer] = partial(load, path, outputs)
    return peers


_CONTEXT = multiprocessing.get_context("spawn")


def _run_once(
    load: Callable[[Path, list[str]], Run], path: Path, outputs: list[str], feeds: Feeds, threads: int
) -> None:
    candidates.THREADS = threads
    with contextlib.suppress(Exception):  # it is raised again where it is caught
        load(path, outputs)(feeds)


def snr(run: Run, exact: Run, inputs: list[Feeds]) -> float:
    """The signal-to-noise ratio of the worst float output, in dB."""
    noise: dict[int, float] = {}
    signal: dict[int, float] = {}
    for feeds in inputs:
        for position, (given, wanted) in enumerate(zip(run(feeds).values(), exact(feeds).values(), strict=True)):
            if given.shape != wanted.shape:  # loops ended at another step
                return -math.inf
            if wanted.dtype.kind == "f":
                noise[position] = noise.get(position, 0.0) + float(np.sum((given - wanted).astype(np.float64) ** 2))
                signal[position] = signal.get(position, 0.0) + float(np.sum(wanted.astype(np.float64) ** 2))
    return min((_decibels(signal[position], noise[position]) for position in noise), default=math.inf)


def _decibels(signal: float, noise: float) -> float:
    if not (math.isfinite(noise) and math.isfinite(signal)) or not signal:
        return -math.inf if noise else math.inf
    return 10 * math.log10(signal / noise) if noise else math.inf


def turn(run: Run, feeds: Feeds) -> float:
    """The fastest of as many runs as fit into a turn; the first one is not counted."""
    run(feeds)
    best, end = math.inf, time.perf_counter() + TURN
    while True:
        begun = time.perf_counter()
        run(feeds)
        done = time.perf_counter()
        best = min(best, done - begun)
        if done >= end:
            return best


def paired(runs: dict[str, Run], feeds: Feeds, pairs: int) -> dict[str, list[float]]:
    """Seconds of the turns of each, in alternating order."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(pairs):
        for name in list(runs) if number % 2 == 0 else reversed(list(runs)):
            times[name].append(turn(runs[name], feeds))
    return times


def drawn(like: Path) -> list[Feeds]:
    """Return inputs like those in a file, which come first."""
    rng = np.random.default_rng(0)
    with np.load(like) as file:
        found = [dict(file)]
    for _ in range(INPUTS - 1):
        feeds = {}
        for name, array in found[0].items():
            if array.dtype.kind == "f":
                feeds[name] = rng.normal(array.mean(), array.std(), array.shape).astype(array.dtype)
            elif array.dtype.kind in "iu":
                feeds[name] = rng.integers(array.min(), array.max() + 1, array.shape).astype(array.dtype)
            else:
                feeds[name] = array
        found.append(feeds)
    return found


def row_of(name: str, options: argparse.Namespace) -> dict:
    """Everything that is measured of one net."""
    if options.models:
        (model,) = [path for path in options.models if path.stem == name]
        inputs = drawn(model.with_suffix(".npz"))
    else:
        wheels, net = Wheels(options.wheels), NETS[name]
        model = wheels.file(net.wheel, net.path)
        inputs = [stream[0] for stream in net.streams(wheels)][:INPUTS]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "data").mkdir()
        for number, feeds in enumerate(inputs):
            np.savez(folder / "data" / f"{number:03}.npz", **feeds)
        begun = time.perf_counter()
        tuned = dovetail.tune(
            model, data=folder / "data", min_snr=options.min_snr, threads=(candidates.THREADS,), budget=options.budget
        )
        seconds = time.perf_counter() - begun
        for line in [*tuned.rows(), *tuned.notes, *tuned.lines()]:
            print("   ", line)
        compiled = tuned.compiled
        if compiled is None:
            return {"net": name, "winner": "none"}
        compiled.save(folder / "winner")
        compiled.unload()
        peers = peers_of(model, inputs, folder, options.nncf)
        exact = reference_runner(dovetail.open(model), Context(Request(), plugins=load_plugins()))
        accuracy = {peer: snr(make(), exact, inputs[1::2]) for peer, make in peers.items()}
        times: dict[str, list[float]] = {}
        for _ in range(MEASUREMENTS):
            runs = {"winner": winner_of(folder / "winner"), **{peer: make() for peer, make in peers.items()}}
            for who, seconds_of_turns in paired(runs, inputs[1], options.pairs // MEASUREMENTS).items():
                times.setdefault(who, []).extend(seconds_of_turns)
    ratios: dict[str, Ratio] = {peer: ratio_of(times["winner"], times[peer]) for peer in peers}
    counted = [peer for peer in peers if accuracy[peer] >= options.min_snr]
    row = {
        "net": name, "winner": tuned.winner.candidate.name, "SNR": tuned.winner.snr_db, "fastest peer": "none meets it",
        "certificate": tuned.certificate, "ms": statistics.median(times["winner"]) * 1e3, "tuned in s": seconds,
        "peers": {peer: [ratios[peer].median, accuracy[peer]] for peer in peers},
    }  # fmt: skip
    if counted:
        hardest = max(counted, key=lambda peer: ratios[peer].median)
        row |= {"fastest peer": hardest, "ratio": ratios[hardest].median, "of its time": str(ratios[hardest])}
    return row


def readable(found: dict) -> dict:
    """A row of the table."""
    if "peers" not in found:
        return {"net": found["net"], "winner": found.get("winner", found.get("failed", ""))}
    slower = " *" if found.get("ratio", 0.0) > SLOWER else ""
    peers = {
        peer: f"{found['peers'][peer][0]:.2f} ({found['peers'][peer][1]:.0f} dB)" if peer in found["peers"] else ""
        for peer in PEERS
    }
    return {
        "net": found["net"], "ms": f"{found['ms']:.2f}", "winner": found["winner"], "SNR": f"{found['SNR']:.1f}",
        "fastest peer": found["fastest peer"], "of its time": found.get("of its time", "") + slower, **peers,
        "certificate": found["certificate"].partition(" of the best")[0],
        "tuned in s": f"{found['tuned in s']:.0f}",
    }  # fmt: skip


def summary(rows: list[dict]) -> str:
    """What was reached, in a line."""
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    gaps = [float(gap[1]) for row in rows if (gap := re.match(r"within ([\d.]+) %", row.get("certificate", "")))]
    alone = sum("peers" in row and "ratio" not in row for row in rows)
    parts = [f"{len(rows)} nets, {len(ratios) + alone} with a plan, {alone} where no peer meets the goal"]
    parts.append(f"slower than {SLOWER} of the fastest peer on {sum(ratio > SLOWER for ratio in ratios)}")
    parts.append(f"at most {FASTER} of it on {sum(ratio <= FASTER for ratio in ratios)}")
    if gaps:
        parts.append(f"certificates on {len(gaps)}, median {statistics.median(gaps):g} %")
    return "; ".join(parts)


def _kept(name: str, options: argparse.Namespace) -> None:
    candidates.THREADS = options.threads
    try:
        row = row_of(name, options)
    except Exception as error:  # a net that fails is a finding
        traceback.print_exc()
        row = {"net": name, "failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    _file(name, options).write_text(json.dumps(row, indent=1))


def _file(name: str, options: argparse.Namespace) -> Path:
    return options.results / f"{name.replace('/', ' ')}.json"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"))
    parser.add_argument("--models", type=Path, nargs="+", help="files to measure in place of the nets")
    parser.add_argument("--results", type=Path, required=True, help="where the row of each net is kept")
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=list(NETS), metavar="NAME")
    parser.add_argument("--min-snr", type=float, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=90)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--nncf", metavar="PYTHON", help="a Python that has NNCF")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    names = [path.stem for path in options.models] if options.models else options.nets
    for name in names:
        if _file(name, options).exists():
            continue
        print(name, flush=True)
        process = _CONTEXT.Process(target=_kept, args=(name, options))
        process.start()
        process.join()
        if process.exitcode:
            row = {"net": name, "failed": f"the process ended with {process.exitcode}"}
            _file(name, options).write_text(json.dumps(row))
    rows = [json.loads(_file(name, options).read_text()) for name in names]
    print()
    table([readable(row) for row in rows])
    print()
    print(summary(rows))


if __name__ == "__main__":
    main()
