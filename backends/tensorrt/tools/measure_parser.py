"""Compare the backend file with the parser of TensorRT-RTX.

    python measure_parser.py results.jsonl [--only Conv] [--build]
    python measure_parser.py results.jsonl --compare [--option precision=bf16]

The first form gives the operator tests of the onnx package (see `node_tests`) to the parser, and writes one JSON line
per case; with `--build`, the first four cases of each operator, type and form are built, too. The second form compares
the results with the file: it prints every case that the file accepts although parser or builder refuse it, and how many
cases per operator it refuses although they parse.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from pathlib import Path

import onnx
from node_tests import Case, cases
from rtx_parser import Worker

BUILT = 4  # cases per operator, type and form


def main() -> None:
    """Measure, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", help="one operator type")
    parser.add_argument("--build", action="store_true", help="build some of the cases that parse")
    parser.add_argument("--compare", action="store_true", help="compare measured results with the file")
    parser.add_argument("--option", action="append", default=[], help="KEY=VALUE of the backend")
    options = parser.parse_args()
    todo = [case for case in cases() if options.only in (None, case.operator)]
    if options.compare:
        compare(todo, options.results, dict(text.split("=") for text in options.option))
    else:
        measure(todo, options.results, options.build)


def measure(todo: list[Case], results: Path, build: bool) -> None:
    """Ask parser and builder, and write the answers."""
    worker, built = Worker(), collections.Counter()
    with results.open("w") as out:
        for number, case in enumerate(todo):
            key = (case.operator, case.kind, case.form)
            try_building = build and built[key] < BUILT
            answer = worker.ask(case.model.SerializeToString(), try_building)
            built[key] += try_building and answer.outcome != "parse"
            text = " ".join((answer.errors[0][2] if answer.errors else answer.detail).split())
            record = {"op": case.operator, "test": case.test, "kind": case.kind, "form": case.form}
            out.write(json.dumps({**record, "outcome": answer.outcome, "detail": text[:300]}) + "\n")
            print(f"\r{number + 1}/{len(todo)}", end="", file=sys.stderr)
    worker.stop()


def compare(todo: list[Case], results: Path, options: dict[str, str]) -> None:
    """Print where the file and the parser differ."""
    import dovetail
    from dovetail.plugin.loading import load_backend_file
    from dovetail_onnx.opening import open_proto
    from dovetail_tensorrt.table import refusals_as_typed

    registry = dovetail.load_plugins().registry
    backend = load_backend_file(registry, registry.backend["tensorrt"], options)
    answers = {(r["test"], r["kind"], r["form"]): r for r in map(json.loads, results.read_text().splitlines())}
    counts: collections.Counter[tuple[bool, bool]] = collections.Counter()
    refused: collections.Counter[tuple[str, str]] = collections.Counter()
    for case in todo:
        answer = answers.get((case.test, case.kind, case.form))
        if answer is None or answer["outcome"] == "crash":
            continue
        model = open_proto(onnx.shape_inference.infer_shapes(case.model), case.test)
        why = refusals_as_typed(model, backend, registry)
        passed = answer["outcome"] == "ok"
        counts[not why, passed] += 1
        if not why and not passed:
            print(f"taken, but {answer['outcome']}: {case.test} {case.kind} {case.form}: {answer['detail'][:160]}")
        if why and passed:
            refused[case.operator, next(iter(why.values()))[-90:]] += 1
    for (operator, why), count in sorted(refused.items()):
        print(f"refused, but ok: {operator} {count}: {why}")
    for (taken, passed), count in sorted(counts.items(), reverse=True):
        print(f"{count:5} {'taken' if taken else 'refused'}, {'ok' if passed else 'failed'}")


if __name__ == "__main__":
    main()
