"""Predicted times of mixtures beside measured ones: how often the interval of a prediction holds what was measured.

    python bench/mixtures.py --wheels FOLDER --nets NAME ... [--min-snr 30] [--threads 1] [--budget 90] [--drawn]
                             [--profiles FOLDER]

Tunes trained nets one after the other, as on a machine that has never tuned: predictions learn from the mixtures before
them, in a folder of their own, which `--profiles` keeps for the next run. With `--drawn`, three mixtures per net are
drawn at random, of two candidates before and behind one border, which shows how good predictions are where no mixture
is worth a trial. A row per mixture: its predicted share of the host's time with its interval, what it took as a trial,
and whether the interval holds that. The last line counts, and says how wide the intervals are: the upper end over the
lower one, the median.
"""

import argparse
import math
import os
import random
import statistics
import tempfile
from pathlib import Path
from unittest.mock import patch

import dovetail
import numpy as np
from dovetail_tune.mixing import Mixing
from trained import NETS
from trained_nets.wheels import Wheels

INPUTS = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--nets", nargs="+", choices=list(NETS), required=True, metavar="NAME")
    parser.add_argument("--min-snr", type=float, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=90)
    parser.add_argument("--drawn", action="store_true")
    parser.add_argument("--profiles", type=Path, help="folder to keep profiles and errors in")
    options = parser.parse_args()
    held, found, widths = [], [], []
    learn = Mixing.learn

    def seen(self, trial):
        predicted = self._predicted.get(trial.candidate.name)
        if predicted is not None and trial.against is not None:
            found.append((trial.candidate.name, predicted, trial.against.median))
        learn(self, trial)

    print("| net | mixture | predicted | interval | measured | held |\n|---|---|---|---|---|---|", flush=True)
    chosen = patch.object(Mixing, "_next", drawn if options.drawn else Mixing._next)
    with tempfile.TemporaryDirectory() as folder, patch.object(Mixing, "learn", seen), chosen:
        os.environ["DOVETAIL_PROFILES"] = str(options.profiles or folder)
        for name in options.nets:
            notes = tuned(name, options).notes
            if not found:
                why = next((note for note in notes if "is mixed" in note), "no mixture is predicted to be faster")
                print(f"| {name} | {why} | | | | |", flush=True)
            for mixture, one, measured in found:
                held.append(one.holds(measured))
                widths.append(one.high / one.low)
                cells = [name, mixture, f"{one.median:.2f}", f"{one.low:.2f} to {one.high:.2f}", f"{measured:.2f}"]
                print("| " + " | ".join([*cells, "yes" if held[-1] else "no"]) + " |", flush=True)
            found.clear()
    width = f", width {statistics.median(widths):.2f}" if widths else ""
    print(f"\n{sum(held)} of {len(held)} intervals hold what was measured{width}")


def drawn(self, problem):
    """A mixture of two candidates with one border, within the goal if there is one; None if none can be measured."""
    names, segments = range(len(self._chosen)), range(1, len(problem.seconds))
    plans = [
        (first,) * at + (second,) * (len(problem.seconds) - at)
        for at in segments for first in names for second in names if first != second
    ]  # fmt: skip
    left = [plan for plan in plans if plan not in self._plans.values() and problem.time_of(plan) < math.inf]
    within = [plan for plan in left if problem.is_feasible(plan)]
    return random.Random(len(self._plans)).choice(within or left) if left else None


def tuned(name, options):
    wheels, net = Wheels(options.wheels), NETS[name]
    with tempfile.TemporaryDirectory() as folder:
        for number, stream in enumerate(net.streams(wheels)[:INPUTS]):
            np.savez(Path(folder, f"{number:03}.npz"), **stream[0])
        return dovetail.tune(
            wheels.file(net.wheel, net.path), data=Path(folder), min_snr=options.min_snr, threads=(options.threads,),
            budget=options.budget,
        )  # fmt: skip


if __name__ == "__main__":
    main()
