"""Whether a goal said to be met is met on other data: `python bench/goals_unseen.py WHEELS NET ... --min-snr 30`.

Compiles trained nets out of wheels with a goal, on every other one of their inputs, and measures the results on those
that the compilation did not have. Prints a row per net: the figure without a goal, what `compile` says, what the
others give as a whole and in the worst of them, how many nodes are in integers or 16-bit floats, how often the net was
compiled, how long that took, and the time of the result over that of cpu-bf16 and over that of the fastest floats that
meet the goal (the least of alternating turns on one input): float32 on the host or in cpu-bf16, or cpu-bf16 itself.
"""

import argparse
import math
import time
from pathlib import Path
from unittest.mock import patch

import dovetail
from dovetail.compiler import Driver
from dovetail.errors import GoalError
from dovetail_verify.accuracy.trials import low_nodes
from trained_nets.catalog import NETS as TRAINED
from trained_nets.wheels import Wheels


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("nets", nargs="+")
    parser.add_argument("--backend", action="append", help="cpu-bf16 by default")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--min-snr", type=float, default=30)
    parser.add_argument("--most", type=int, default=10, help="inputs for the compilation, and as many others")
    args = parser.parse_args()
    args.backend = args.backend or ["cpu-bf16"]
    return args


def row(net, wheels, args):
    streams = net.streams(wheels)
    seen, unseen = (
        [feeds for stream in part[: args.most] for feeds in stream] for part in (streams[::2], streams[1::2])
    )
    path = wheels.file(net.wheel, net.path)
    plain = dovetail.compile(path, args.backend, data=seen).verification.worst_snr_db
    compiles = 0
    compile_ = Driver.compile

    def counted(*given, **more):
        nonlocal compiles
        compiles += 1
        return compile_(*given, **more)

    start = time.perf_counter()
    with patch.object(Driver, "compile", counted):
        try:
            result = dovetail.compile(path, args.backend, data=seen, min_snr=args.min_snr)
            said = "met" if result.plan.summary["accuracy"]["met"] else "too few"
        except GoalError as error:
            result, said = error.compiled, "missed"
    took = time.perf_counter() - start
    singles = [dovetail.verify(path, result, [feeds]).worst_snr_db for feeds in unseen]
    other = dovetail.verify(path, result, unseen).worst_snr_db
    cells = [f"{value:.1f}" for value in (plain, result.verification.worst_snr_db)]
    within = sum(value >= args.min_snr for value in singles)
    low = f"{len(low_nodes(result.plan))} of {len(result.plan.nodes)}"
    floats = {
        "cpu-bf16": dovetail.compile(path, "cpu-bf16", verify=False),
        "cpu-bf16 in float32": dovetail.compile(path, "cpu-bf16", high=["*"], verify=False),
        "the host": dovetail.compile(path, "host", verify=False),
    }
    times = least_times({"": result, **floats}, unseen[0], args.turns)
    meeting = [name for name, one in floats.items() if dovetail.verify(path, one, unseen).worst_snr_db >= args.min_snr]
    fastest = min(meeting, key=lambda name: times[name])
    return [net.name, len(seen), *cells, said, f"{other:.1f}", f"{min(singles, default=math.nan):.1f}",
            f"{within} of {len(singles)}", low, compiles, f"{took:.0f}", f"{times[''] / times['cpu-bf16']:.2f}",
            f"{times[''] / times[fastest]:.2f} ({fastest})"]  # fmt: skip


def least_times(results, feeds, turns):
    """Seconds of the fastest run of each result, of alternating turns."""
    least = dict.fromkeys(results, math.inf)
    for name, compiled in [*results.items()] * turns:
        compiled.run(feeds)  # threads of the other ones go idle
        for _ in range(3):
            begun = time.perf_counter()
            compiled.run(feeds)
            least[name] = min(least[name], time.perf_counter() - begun)
    return least


def main():
    args = parse()
    wheels, known = Wheels(args.wheels), {net.name: net for net in TRAINED}
    heads = ["net", "inputs", "SNR without", "SNR said", "goal", "SNR on others", "worst of others", "others above",
             "low nodes", "compiles", "s", "time / cpu-bf16", "time / fastest floats that meet it"]  # fmt: skip
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    for name in args.nets:
        try:
            cells = row(known[name], wheels, args)
        except dovetail.DovetailError as error:
            cells = [name, error.message, *[""] * (len(heads) - 2)]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
