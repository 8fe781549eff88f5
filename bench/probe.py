"""How true the backend files of `dovetail probe` are, by onnx's node tests.

    python bench/probe.py ENGINE ... [--time-limit 900] [--sample N] [--folder FOLDER] [--failures]

Each engine is probed, and its file is written. Then every node test runs twice: on the engine alone, as it is and with
all inputs but the first as constants, and compiled for the written file. The table has the share of the accepted tests
that are right, and the share of the tests that the engine computes which the file accepts. Tests that no reference
reproduces (random numbers) are left out, and so are those without inputs, which are folded before a provider sees them.
The tests of single operators are those that the probe drew on; the bodies of operators in several nodes
(`..._expanded`) were not seen by it, so they stand in a row of their own.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import dovetail
import onnx
from dovetail.passes import BackendChoice
from dovetail.plugin import EngineError, Tool
from dovetail.plugin.loading import load_chosen, use_file
from dovetail_testing.case import Case
from dovetail_testing.probe.cases import ProbeCase
from dovetail_testing.probe.observing import Outcome
from dovetail_testing.probe.precision import is_right, tolerance
from dovetail_testing.probe.probing import Probe, probe
from dovetail_testing.probe.trials import ProbeState, Trials
from dovetail_testing.probe.writing import file_of
from dovetail_testing.running import RECORDED, _with_constants, chosen_reference, measure
from dovetail_testing.suites import node_cases, sampled

SECONDS = 60.0  # of one test
_kept: dict[str, object] = {}


def measured(name: str, file: str) -> dict:
    """Compile a test for a file and compare; called in a process of its own."""
    if not _kept:
        _kept["plugins"] = dovetail.load_plugins()
        _kept["cases"] = {case.name: case for case in node_cases()}
    found = measure(_kept["cases"][name], file, _kept["plugins"])
    return found.as_dict()


def computed(case: Case, trials: Trials, plugins, precision: str) -> tuple[bool, set[str]] | None:
    """Return whether the engine computes a test, with the types of its results; None if nothing says what is right."""
    work = case.make(plugins)
    if not work.inputs:  # constants alone, which ONNX Runtime folds before a provider sees them
        return None
    reference, _, _ = chosen_reference(work)
    if reference is None or reference.name == RECORDED:
        return None
    types: set[str] = set()
    for each in filter(None, (work, _with_constants(work))):
        proto = onnx.ModelProto.FromString(each.model.SerializeToString())
        proto.ir_version = min(proto.ir_version, 11)
        outcome: Outcome = trials.outcome(ProbeCase(case.operator, case.name, proto, each.inputs, each.expected))
        types |= set(outcome.types)
        if is_right(outcome, precision):
            return True, types
    return False, types


def rows_of(found: Probe, file: Path, state: Path, sample: int | None) -> list[dict]:
    """Compare a file with the engine, test by test."""
    plugins = dovetail.load_plugins()
    tool = Tool.start(__file__, title="a test", timeout=SECONDS)
    rows = []
    with Trials(found.engine, found.chosen, ProbeState(state, {"tests": found.engine, **found.versions})) as trials:
        for number, case in enumerate(node_cases() if sample is None else sampled(node_cases(), sample)):
            if number % 100 == 0:
                print(f"    {number} tests", file=sys.stderr, flush=True)
            alone = computed(case, trials, plugins, found.precision)
            if alone is None:
                continue
            try:
                taken = tool.ask("measured", name=case.name, file=str(file))
            except EngineError as error:
                taken = {"outcome": "error", "problem": error.message, "placed": 1, "exact": False, "share": 1.0}
            limit = tolerance(alone[1], found.precision)
            good = taken["outcome"] == "compared" and not taken["problem"]
            rows.append({
                "name": case.name, "alone": alone[0], "accepted": taken["outcome"] != "host",
                "right": good and (taken["exact"] or taken["share"] <= limit),
                "single": len(case.make(plugins).proto.graph.node) == 1, "why": taken.get("problem", ""),
                "reasons": taken.get("reasons", ()), "share": taken.get("share", 0.0),
            })  # fmt: skip
    tool.close()
    return rows


def line(engine: str, kind: str, rows: list[dict], found: Probe) -> str:
    """Return a row of the table."""
    accepted = [row for row in rows if row["accepted"]]
    right = [row for row in rows if row["alone"]]
    true = sum(row["right"] for row in accepted)
    taken = sum(row["accepted"] for row in right)
    return (
        f"| {engine} | {kind} | {len(rows)} | {true} of {len(accepted)}: {100 * true / max(1, len(accepted)):.1f} % | "
        f"{taken} of {len(right)}: {100 * taken / max(1, len(right)):.1f} % | {found.known} | {found.seconds:.0f} s |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="+", metavar="ENGINE")
    parser.add_argument("--time-limit", type=float, default=900.0)
    parser.add_argument("--sample", type=int, help="compare on so many tests, of as many operators as can be")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/probe"))
    parser.add_argument(
        "--failures", action="store_true", help="also print the tests about which file and engine disagree"
    )
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    table = []
    for engine in args.engines:
        began = time.monotonic()
        state = args.folder / f"{engine}.state"
        found = probe(engine, state=state, time_limit=args.time_limit)
        file = args.folder / f"{engine}-measured.backend.yaml"
        file.write_text(file_of(found, f"{engine}-measured"))
        plugins = dovetail.load_plugins()
        load_chosen(plugins.registry, BackendChoice.parse(use_file(plugins.registry, str(file))))  # it is valid
        rows = rows_of(found, file, args.folder / f"{engine}.tests.state", args.sample)
        for kind, single in (("single operators", True), ("bodies of operators", False)):
            table.append(line(engine, kind, [row for row in rows if row["single"] is single], found))
        table.append(line(engine, "all", rows, found))
        if args.failures:
            for row in rows:
                if row["accepted"] and not row["right"]:
                    print(f"accepted, wrong: {row['name']} {row['why'][:150]} {row['share']:.2g}")
                elif row["alone"] and not row["accepted"]:
                    print(f"right, refused: {row['name']} {str(row['reasons'])[:200]}")
        print(f"{engine}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print("| engine | tests | number | accepted that are right | right that are accepted | nodes probed | time |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(table))


if __name__ == "__main__":
    main()
