"""`dovetail tune` on trained nets: the winner against every single peer that meets the same goal.

    python bench/tune.py --wheels FOLDER [--nets NAME ...] [--min-snr 30] [--threads 1] [--budget 240] [--pairs 40]

For each net, `dovetail.tune` chooses a plan on half of 16 real inputs and judges it on the others. Then the winner, as
its folder loads, takes turns with peers that know nothing of Dovetail, on the same file and input: ONNX Runtime in
float32, OpenVINO in float32 and in its own bfloat16 mode. Peers that miss the goal on the judging half do not count.
The table has the median of the paired ratios of the winner to the fastest peer that counts, with its 95 % interval
(goal: 1.03 at most), the certificate, and the ratio to each peer.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dovetail
import numpy as np
from dovetail_tune.statistics_of_pairs import Ratio, ratio_of
from measure import table
from trained import NETS
from trained_nets import candidates
from trained_nets.wheels import Wheels

Feeds = dict[str, np.ndarray]
Run = Callable[[Feeds], dict[str, np.ndarray]]
DEFAULT = ("PP-OCRv4 recognizer", "captcha CRNN", "PP-OCRv2 direction", "NudeNet 320n")
INPUTS, TURN = 16, 0.05


def openvino_float32(model: Path) -> Run:
    """OpenVINO on the file itself, in float32."""
    import openvino

    config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    config["INFERENCE_NUM_THREADS"] = candidates.THREADS
    compiled = openvino.Core().compile_model(str(model), "CPU", config)
    request = compiled.create_infer_request()
    names = [output.get_any_name() for output in compiled.outputs]
    return lambda feeds: dict(zip(names, map(np.array, request.infer(feeds).to_tuple()), strict=True))


def snr(run: Run, exact: Run, inputs: list[Feeds]) -> float:
    """The signal-to-noise ratio of the worst float output, in dB."""
    noise: dict[int, float] = {}
    signal: dict[int, float] = {}
    for feeds in inputs:
        for position, (given, wanted) in enumerate(zip(run(feeds).values(), exact(feeds).values(), strict=True)):
            if wanted.dtype.kind == "f":
                noise[position] = noise.get(position, 0.0) + float(np.sum((given - wanted).astype(np.float64) ** 2))
                signal[position] = signal.get(position, 0.0) + float(np.sum(wanted.astype(np.float64) ** 2))
    return min(10 * math.log10(signal[p] / noise[p]) if noise[p] else math.inf for p in noise)


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


def row_of(name: str, options: argparse.Namespace) -> dict:
    """One row of the table."""
    wheels, net = Wheels(options.wheels), NETS[name]
    model = wheels.file(net.wheel, net.path)
    inputs = [stream[0] for stream in net.streams(wheels)][:INPUTS]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        data.mkdir()
        for number, feeds in enumerate(inputs):
            np.savez(data / f"{number:03}.npz", **feeds)
        begun = time.perf_counter()
        tuned = dovetail.tune(
            model, data=data, min_snr=options.min_snr, threads=(candidates.THREADS,), budget=options.budget
        )
        seconds = time.perf_counter() - begun
        for line in [*tuned.rows(), *tuned.notes, *tuned.lines()]:
            print("   ", line)
        compiled = tuned.compiled
        if compiled is None:
            return {"net": name, "winner": "none"}
        compiled.options["threads"] = candidates.THREADS
        exact = candidates.onnxruntime_float32(model).run
        peers = {"ONNX Runtime": exact}
        for peer, make in (
            ("OpenVINO f32", lambda: openvino_float32(model)),
            ("OpenVINO bf16", lambda: candidates.openvino_mode(model, exact(inputs[0])).run),
        ):
            try:
                peers[peer] = make()
            except Exception as error:
                print("   ", peer, "does not take it:", str(error).splitlines()[0])
        accuracy = {peer: snr(run, exact, inputs[1::2]) for peer, run in peers.items()}
        times = paired({"winner": compiled.run, **peers}, inputs[1], options.pairs)
    ratios: dict[str, Ratio] = {peer: ratio_of(times["winner"], times[peer]) for peer in peers}
    counted = [peer for peer in peers if accuracy[peer] >= options.min_snr]
    hardest = max(counted, key=lambda peer: ratios[peer].median)
    winner = tuned.winner
    return {
        "net": name, "winner": winner.candidate.name, "SNR": f"{winner.snr_db:.1f}", "fastest peer": hardest,
        "of its time": str(ratios[hardest]),
        **{peer: f"{ratios[peer].median:.2f} ({accuracy[peer]:.0f} dB)" if peer in ratios else "" for peer in
           ("ONNX Runtime", "OpenVINO f32", "OpenVINO bf16")},
        "certificate": tuned.certificate.removesuffix(" of the best that these measurements allow (by HiGHS)"),
        "tuned in s": f"{seconds:.0f}",
    }  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=DEFAULT)
    parser.add_argument("--min-snr", type=float, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=240)
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    candidates.THREADS = options.threads
    rows = []
    for name in options.nets:
        print(name, flush=True)
        rows.append(row_of(name, options))
    print()
    table(rows)


if __name__ == "__main__":
    main()
