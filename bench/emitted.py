"""Files that emitters write for random graphs, executed from the files alone and compared with the plan's result.

    python bench/emitted.py --count 500 [--seed 0] [--jobs 1] [--only ppl-int8,tensorrt]

Graphs come from `tests/property/grown_models.py`. `tests/e2e/emitted_files.py` reads what the emitters wrote, nothing
else: it rounds values where a file says so, and computes the rest in ONNX Runtime without optimizers. The function of
its region takes the place of an engine, which only a GPU executes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]

BACKENDS = ("acme-int8", "acme-aot", "ppl-int8", "bpu-int8:arithmetic=floats", "tensorrt")


def work(backends: list[str], seeds: list[int]) -> None:
    """Try graphs one after the other, and print a line of JSON for each."""
    from dovetail.errors import DovetailError
    from e2e.emitted_comparison import differences
    from property.grown_models import grown
    from property.grown_trial import plugins_with_examples

    plugins, out = plugins_with_examples(), sys.stdout
    sys.stdout = sys.stderr
    for seed in seeds:
        made, found = grown(seed), {}
        for backend in backends:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    wrong = differences(backend, made.model, made.feeds, plugins, Path(folder, "out"), close=True)
                    emitted = any(Path(folder, "out", "artifacts").glob("*/*"))
                    kind = "other integers" if wrong else "equal" if emitted else "no file"
                    found[backend] = [kind, str(wrong or "")]
                except DovetailError as error:
                    found[backend] = ["refused", str(error)]
                except Exception as error:
                    found[backend] = ["fails", f"{type(error).__name__}: {error}"[:400]]
        print(json.dumps({"seed": seed, "kind": "done", "found": found}), file=out, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default=",".join(BACKENDS), help="backends")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a graph hangs")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker[0].split(","), [int(seed) for seed in options.worker[1:]])
        return
    from watched import run_watched

    table: Counter = Counter()

    def report(line: dict) -> None:
        for backend, (kind, said) in line.get("found", {"all": (line["kind"], line.get("said", ""))}).items():
            table[backend, kind] += 1
            if kind in ("other integers", "fails", "hang", "crash"):
                print(json.dumps({"seed": line["seed"], "backend": backend, "kind": kind, "said": said}), flush=True)

    run_watched(
        __file__, [options.only], range(options.seed, options.seed + options.count), options.jobs, options.limit, report
    )
    print("| backend | outcome | graphs |\n|---|---|---|")
    for (backend, kind), number in sorted(table.items()):
        print(f"| {backend} | {kind} | {number} |")


if __name__ == "__main__":
    main()
