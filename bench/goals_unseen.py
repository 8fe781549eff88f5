"""Whether a goal said to be met is met on other data: `python bench/goals_unseen.py WHEELS NET ... --min-snr 30`.

Compiles trained nets out of wheels with a goal, on every other one of their inputs, and measures the results on those
that the compilation did not have. Prints a row per net: the figure without a goal, what `compile` says, what the
others give as a whole and in the worst of them, how often the net was compiled, and how long that took.
"""

import argparse
import math
import time
from pathlib import Path
from unittest.mock import patch

import dovetail
from dovetail.compiler import Driver
from dovetail.errors import GoalError
from trained_nets.catalog import NETS as TRAINED
from trained_nets.wheels import Wheels


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("nets", nargs="+")
    parser.add_argument("--backend", default="cpu-bf16")
    parser.add_argument("--min-snr", type=float, default=30)
    parser.add_argument("--most", type=int, default=10, help="inputs for the compilation, and as many others")
    return parser.parse_args()


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
    said = "met"
    with patch.object(Driver, "compile", counted):
        try:
            result = dovetail.compile(path, args.backend, data=seen, min_snr=args.min_snr)
        except GoalError as error:
            result, said = error.compiled, "missed"
    took = time.perf_counter() - start
    singles = [dovetail.verify(path, result, [feeds]).worst_snr_db for feeds in unseen]
    other = dovetail.verify(path, result, unseen).worst_snr_db
    cells = [f"{value:.1f}" for value in (plain, result.verification.worst_snr_db)]
    within = sum(value >= args.min_snr for value in singles)
    return [net.name, len(seen), *cells, said, f"{other:.1f}", f"{min(singles, default=math.nan):.1f}",
            f"{within} of {len(singles)}", compiles, f"{took:.0f}"]  # fmt: skip


def main():
    args = parse()
    wheels, known = Wheels(args.wheels), {net.name: net for net in TRAINED}
    heads = ["net", "inputs", "SNR without", "SNR said", "goal", "SNR on others", "worst of others", "others above",
             "compiles", "s"]  # fmt: skip
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    for name in args.nets:
        print("| " + " | ".join(map(str, row(known[name], wheels, args))) + " |", flush=True)


if __name__ == "__main__":
    main()
