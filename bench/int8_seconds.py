"""Seconds of compiling a trained net for cpu-int8 beside ONNX Runtime's quantize_static, on the same samples.

    python bench/int8_seconds.py WHEELS NET ... [--most 12] [--rounds 3]

Each runs in a process of its own, in turns, and saves its result. What counts is the least time of each: by the clock
from its call to the saved file, by the clock with imports, and of all processors with imports. Neither compares its
result with the original. `plain` leaves out our corrections of weights and biases, which quantize_static does not make.
quantize_static includes its preprocessing, takes minima and maxima, and gives each channel of a weight its own scale.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

OURS, PLAIN, STATIC = "dovetail", "plain", "quantize_static"
TIMES = ("clock", "clock with imports", "processors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("nets", nargs="+")
    parser.add_argument("--most", type=int, default=12, help="samples")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[OURS, PLAIN, STATIC], help="run this here: MODEL, FOLDER; print JSON")
    parser.add_argument("--started", type=float, help="when the process was started, in seconds of time.time")
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measured(args.only, args.wheels, Path(args.nets[0]), args.started)))
        return
    # Only here: a process that measures imports nothing but its tool.
    from trained_nets.catalog import NETS
    from trained_nets.wheels import Wheels

    wheels, known = Wheels(args.wheels), {net.name: net for net in NETS}
    heads = [*(f"{STATIC} {key}" for key in TIMES), *(f"{tool}, {key}" for tool in (OURS, PLAIN) for key in TIMES)]
    print("| net | samples | " + " | ".join(heads) + " |\n" + "|---" * (len(heads) + 2) + "|", flush=True)
    for net in map(known.get, args.nets):
        with tempfile.TemporaryDirectory() as folder:
            samples = [feeds for stream in net.streams(wheels)[::2] for feeds in stream][: args.most]
            for number, feeds in enumerate(samples):
                np.savez(Path(folder, f"{number:04}.npz"), **feeds)
            cells = compared(wheels.file(net.wheel, net.path), folder, args.rounds)
        print(f"| {net.name} | {len(samples)} | " + " | ".join(cells) + " |", flush=True)


def compared(model, folder, rounds):
    """The seconds of quantize_static, and those of ours over them."""
    runs = [{tool: in_process(tool, model, folder) for tool in (OURS, PLAIN, STATIC)} for _ in range(rounds)]
    best = {tool: {key: min(run[tool][key] for run in runs) for key in TIMES} for tool in runs[0]}
    ratios = (best[tool][key] / best[STATIC][key] for tool in (OURS, PLAIN) for key in TIMES)
    return [*(f"{best[STATIC][key]:.2f}" for key in TIMES), *(f"{ratio:.2f}" for ratio in ratios)]


def in_process(tool, model, folder):
    command = [sys.executable, __file__, str(model), folder, "--only", tool, "--started", str(time.time())]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measured(tool, model, data, started):
    with tempfile.TemporaryDirectory() as out:
        run = static if tool == STATIC else ours
        call = run(model, data, Path(out), **({"refine": "none"} if tool == PLAIN else {}))
        began = time.perf_counter()
        call()
        ended = time.perf_counter()
    return dict(zip(TIMES, (ended - began, time.time() - started, time.process_time()), strict=True))


def static(model, data, out):
    """Import quantize_static; return a call of it."""
    from quantizers import prepared, quantize_static

    def call():
        feeds = (dict(np.load(path)) for path in sorted(data.iterdir()))
        quantize_static(prepared(model, out), feeds, out, "MinMax", per_channel=True)

    return call


def ours(model, data, out, **options):
    """Import Dovetail and its plugins; return a call of compile."""
    import dovetail

    dovetail.load_plugins()
    return lambda: dovetail.compile(model, "cpu-int8", data=data, verify=False, **options).save(out / "result")


if __name__ == "__main__":
    main()
