"""Times and accuracy of requests for ONNX Runtime in integers beside the files that quantize_static writes.

    TRAINED_THREADS=1 python bench/int8_forms.py WHEELS NET ... [--backend REQUEST ...] [--fixed]

The nets and their inputs are those of `trained.py`. All files run in ONNX Runtime in one process and take turns; a turn
is the fastest of as many runs as take 30 ms, in seconds of the processor, which other work on the machine disturbs
less than the clock; run it with one thread. Ratios are medians over the turns, to the fastest of quantize_static's
files with uint8 activations: one scale for each weight or for each channel, with weights of 8 or 7 bits. The SNR is
that of the worst float output on samples that calibrated none of them. `--fixed` adds each request with the extents
of the data in place of open ones.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import quantizers
from measure import table
from trained_nets import candidates, judging
from trained_nets.catalog import NETS
from trained_nets.wheels import Wheels

BY_NAME = {net.name: net for net in NETS}
ORT = "cpu-int8:runtime=onnxruntime"
REQUESTS = (ORT, f"{ORT},weight_range=reduced", "cpu-int8:weight_range=reduced")
TURN = 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("nets", nargs="+", metavar="NET", choices=BY_NAME)
    parser.add_argument("--most", type=int, default=12, help="samples that calibrate, and streams that are compared")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--backend", nargs="+", default=REQUESTS, metavar="REQUEST")
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    table([row for name in options.nets for row in compared(name, options)])


def compared(name: str, options: argparse.Namespace) -> list[dict[str, str]]:
    """The rows of one net."""
    net, wheels = BY_NAME[name], Wheels(options.wheels)
    model, streams = wheels.file(net.wheel, net.path), net.streams(wheels)
    test = streams[1::2][: options.most]
    float32 = candidates.onnxruntime_float32(model).run
    calibrating = judging.computed(float32, streams[::2], net.carried)
    data = judging.complete(streams[::2], calibrating, net.carried)[: options.most]
    expected = judging.computed(float32, test, net.carried)
    with tempfile.TemporaryDirectory() as folder:
        static = statics(model, data, Path(folder))
        runs = {"float32": float32, **static}
        for fixed in (None, "data") if options.fixed else (None,):
            for one in options.backend:
                compiled = candidates.ours(model, one, data=list(data), **({"fix_shapes": fixed} if fixed else {}))
                runs[f"{one}, fixed extents" if fixed else one] = compiled.run
        times = taken(runs, test[0][0], options.turns)
        snrs = {who: snr(expected, judging.computed(run, test, net.carried)) for who, run in runs.items()}
    fastest = min(static, key=lambda who: float(np.median(times[who])))
    return [
        {
            "net": name, "what": who, "ms": f"{1000 * np.median(times[who]):.2f}",
            f"of {quantizers.quantize_static.__name__}": f"{np.median(np.divide(times[who], times[fastest])):.2f}",
            "SNR dB": f"{snrs[who]:.1f}",
        }
        for who in runs
    ]  # fmt: skip


def statics(model: Path, data: list, folder: Path) -> dict[str, candidates.Run]:
    """Quantize_static's files, by name."""
    prepared, found = quantizers.prepared(model, folder), {}
    for wide in (False, True):
        for reduced in (False, True):
            path = quantizers.quantize_static(prepared, data, folder, "MinMax", wide, reduced)
            name = f"static by {'channel' if wide else 'tensor'}, {7 if reduced else 8} bits"
            found[name] = candidates.onnxruntime_float32(path).run
    return found


def taken(runs: dict[str, candidates.Run], feeds: dict, turns: int) -> dict[str, list[float]]:
    """The seconds of each in every turn, in alternating order."""
    for run in runs.values():
        run(feeds)
    number = max(2, math.ceil(TURN / min(seconds(lambda run=run: run(feeds)) for run in runs.values())))
    times: dict[str, list[float]] = {who: [] for who in runs}
    for turn in range(turns):
        for who in list(runs) if turn % 2 else list(runs)[::-1]:
            runs[who](feeds)
            times[who].append(min(seconds(lambda who=who: runs[who](feeds)) for _ in range(number)))
    return times


def seconds(run: Callable[[], object]) -> float:
    begun = time.process_time()
    run()
    return time.process_time() - begun


def snr(expected: list, found: list) -> float:
    """The SNR of the worst float output."""
    each = judging.qualities(expected, found).values()
    return min((one.difference.snr_db for one in each), default=math.inf)


if __name__ == "__main__":
    main()
