"""Pairs or triples of operators on OpenVINO as it is, in float32, compared with ONNX Runtime.

    python pairs.py results.jsonl                        every pair, one model each
    python pairs.py results.jsonl --sample 2000 --seed 1 a random part of them
    python pairs.py results.jsonl --length 3 --sample 2000
    python pairs.py results.jsonl --repaired             the engine `openvino-cpu`, with its repairs

Writes one line of JSON per sequence that is wrong or crashes the process, and prints a table of the operators in them.
Sequences that OpenVINO refuses are only counted. Inspect every wrong sequence: often one of its operators is wrong
alone.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sweep import Worker


def main() -> None:
    """Run the pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--length", type=int, default=2)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repaired", action="store_true")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    guilty: collections.Counter[str] = collections.Counter()
    tried: collections.Counter[str] = collections.Counter()
    worker = Worker(__file__, seed=options.seed, repaired=options.repaired)
    with options.results.open("w") as out:
        for names in sequences(options):
            outcome, why = worker(names=list(names))
            counts[outcome] += 1
            if outcome == "skipped":
                continue
            tried.update(set(names))
            if outcome in ("wrong", "crash", "timeout"):
                guilty.update(set(names))
                print(json.dumps({"operators": names, "outcome": outcome, "why": why}), file=out, flush=True)
    worker.close()
    print(", ".join(f"{outcome} {count}" for outcome, count in sorted(counts.items())))
    print("\n| operator | sequences | wrong |\n|---|---|---|")
    for name, count in sorted(guilty.items(), key=lambda item: -item[1] / tried[item[0]]):
        print(f"| {name} | {tried[name]} | {count} |")


def sequences(options: argparse.Namespace) -> list[tuple[str, ...]]:
    """Return the sequences to try."""
    from random_graphs import OPERATORS

    if not options.sample:
        return list(itertools.product(OPERATORS, repeat=options.length))
    chosen = random.Random(options.seed)
    return [tuple(chosen.choices(list(OPERATORS), k=options.length)) for _ in range(options.sample)]


def checked(seed: int, names: list[str], repaired: bool) -> list[str]:
    """Return outcome and explanation of one sequence."""
    from dovetail_cpu_bf16 import engine as engines
    from random_graphs import random_model
    from random_graphs.checking import check_engine, truth

    if not repaired:
        engines.apply_workarounds = lambda model, low_precision: None
        engines.prepare_for_frontend = lambda region: (region, None)
        engines.OpenVinoCpu.transforms_low_precision = True
    try:
        known = truth(*random_model(seed, tuple(names)))
        return list(check_engine(known, engines.OpenVinoCpu()))
    except Exception as error:  # it cannot be made, or ONNX Runtime, the reference, cannot run it
        return ["skipped", str(error)[:300]]


if __name__ == "__main__":
    main()
