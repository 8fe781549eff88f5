"""What becomes of damaged results, plans and artifacts: a right result or one clear message, nothing outside touched.

    python bench/damaged.py --count 2000 [--seed 0] [--jobs 1] [--limit 120]

Damages come from `tests/property/damaged_results.py`. Each worker is a process of its own, so that a crash or a hang of
a library costs one of them; both are counted, and the worker goes on with the next.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))


def work(seeds: list[int]) -> None:
    """Damage copies of results one after the other, use them, and print a line of JSON for each."""
    import dovetail
    from property.damage_trial import trial
    from property.damaged_results import REQUESTS, SAMPLES, make

    out, sys.stdout = sys.stdout, sys.stderr
    with tempfile.TemporaryDirectory() as bases:
        make(Path(bases))
        expected = {name: dovetail.load(Path(bases, name, "out")).run(SAMPLES) for name in REQUESTS}
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                said = trial(seed, Path(bases), Path(folder), expected)
            line = {"seed": seed, "kind": "wrong" if said else "right result or clear message", "said": said}
            print(json.dumps(line), file=out, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120, help="seconds after which one hangs")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work([int(seed) for seed in options.worker])
        return
    from watched import run_watched

    counts: Counter = Counter()

    def report(line: dict) -> None:
        counts[line["kind"]] += 1
        if line["kind"] != "right result or clear message":
            print(json.dumps(line), flush=True)

    run_watched(__file__, [], range(options.seed, options.seed + options.count), options.jobs, options.limit, report)
    print("| outcome | damaged |\n|---|---|")
    for kind, number in counts.most_common():
        print(f"| {kind} | {number} |")


if __name__ == "__main__":
    main()
