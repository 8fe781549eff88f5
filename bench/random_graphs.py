"""Random graphs by every backend and by pairs: right, refused with a reason, or wrong.

    python bench/random_graphs.py --count 2000 [--seed 0] [--jobs 2] [--each 3] [--only "host;cpu-bf16"]

Graphs come from `tests/property/grown_models.py`. Each is compiled for configurations of `grown_trial.py`, executed,
compared with ONNX Runtime on the source within what rounding explains, saved, loaded, executed again, and replayed from
its plan, which must give the same bytes. Workers are processes of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]


def work(configurations: list[str], each: int, seeds: list[int]) -> None:
    """Try graphs one after the other, and print a line of JSON for each."""
    from property.grown_models import grown
    from property.grown_trial import Truth, plugins_with_examples, trial

    plugins, out = plugins_with_examples(), sys.stdout
    sys.stdout = sys.stderr
    for seed in seeds:
        known = Truth(grown(seed))
        outcomes = {}
        for name in [configurations[(seed * each + n) % len(configurations)] for n in range(each)]:
            with tempfile.TemporaryDirectory() as folder:
                outcome = trial(known, name, plugins, Path(folder))
            outcomes[name] = [outcome.kind, outcome.said]
        line = {"seed": seed, "kind": "done", "kinds": sorted(known.made.kinds), "outcomes": outcomes}
        print(json.dumps(line), file=out, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="configurations, between semicolons")
    parser.add_argument("--each", type=int, default=0, help="so many configurations per graph, in turn; by default all")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a graph hangs")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        names, each, *seeds = options.worker
        work(names.split(";"), int(each), [int(seed) for seed in seeds])
        return
    from property.grown_trial import CONFIGURATIONS, RIGHT
    from watched import run_watched

    names = options.only or ";".join(CONFIGURATIONS)
    each = str(min(options.each or 99, len(names.split(";"))))
    seeds = range(options.seed, options.seed + options.count)
    table: dict[str, Counter] = defaultdict(Counter)

    def report(line: dict) -> None:
        for name, (kind, said) in line.get("outcomes", {"all": (line["kind"], line.get("said", ""))}).items():
            table[name][kind] += 1
            if kind not in RIGHT:
                found = {"seed": line["seed"], "configuration": name, "kind": kind, "said": said}
                print(json.dumps(found), flush=True)

    run_watched(__file__, [names, each], seeds, options.jobs, options.limit, report)
    kinds = sorted({kind for counts in table.values() for kind in counts}, key=lambda k: (k not in RIGHT, k))
    print(f"| backends | {' | '.join(kinds)} |\n|---|{'---|' * len(kinds)}")
    for name, counts in table.items():
        print(f"| {name} | {' | '.join(str(counts[kind]) for kind in kinds)} |")


if __name__ == "__main__":
    main()
