"""What becomes of damaged models: a right result or one clear message, never a traceback, a hang or a crash.

    python bench/mutants.py --count 5000 [--seed 0] [--jobs 2] [--backend host] [--limit 60]

Mutants come from `tests/property/mutants.py`; every fourth is compiled for cpu-bf16, the others for the host, whose
results are compared with ONNX Runtime's. Each worker is a process of its own, so that a crash or a hang of a library
costs one mutant; both are counted, and the worker goes on with the next.
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


def work(seeds: list[int], backend: str) -> None:
    """Try mutants one after the other, and print a line of JSON for each."""
    from property.mutant_trial import trial
    from property.mutants import mutant

    for seed in seeds:
        made = mutant(seed)
        with tempfile.TemporaryDirectory() as folder:
            outcome = trial(
                made, Path(folder), ("cpu-bf16" if seed % 4 == 0 else "host") if backend == "mixed" else backend
            )
        line = {"seed": seed, "base": made.base, "changes": made.changes, "kind": outcome.kind, "said": outcome.said}
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--backend", default="", help="one backend for all of them")
    parser.add_argument("--limit", type=float, default=60, help="seconds after which a mutant hangs")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work([int(seed) for seed in options.worker[1:]], options.worker[0])
        return
    from property.mutant_trial import RIGHT
    from watched import run_watched

    seeds = range(options.seed, options.seed + options.count)
    results = run_watched(__file__, [options.backend or "mixed"], seeds, options.jobs, options.limit)
    for result in results:
        if result["kind"] not in RIGHT:
            print(json.dumps(result))
    print("| outcome | mutants |\n|---|---|")
    for kind, number in Counter(result["kind"] for result in results).most_common():
        print(f"| {kind} | {number} |")


if __name__ == "__main__":
    main()
