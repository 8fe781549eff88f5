"""Compare a backend file with measurements.

    python measure_openvino.py results.jsonl
    python check_limits.py results.jsonl ../src/dovetail_cpu_bf16/cpu_bf16.yaml

Asks the backend about every case of the results. A case that it accepts although it failed needs a reason that the file
cannot express; a case that it refuses although it passed only loses speed.
"""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path

import onnx
import onnx_ir as ir
from dovetail.ir import Model
from dovetail.passes import Context
from dovetail_cpu_bf16 import facts
from dovetail_placement.edge_kinds import MarkEdgeKinds
from dovetail_schemas import RuleJudge, load_backend
from node_tests import cases

POLICIES = Path(__file__).parents[3] / "schemas" / "src" / "dovetail_schemas" / "policies"
FACTS = {name: getattr(facts, name) for name in facts.__all__}


def main(results: Path, file: Path) -> None:
    """Print accepted cases that failed, and per operator the number of refused cases that passed."""
    backend = load_backend(file, find=_policy, facts=frozenset(FACTS))
    outcomes = {(r["test"], r["form"]): r["outcome"] for r in map(json.loads, results.read_text().splitlines())}
    counts: collections.Counter[tuple[bool, bool]] = collections.Counter()
    refused: collections.Counter[str] = collections.Counter()
    for case in cases():
        if (case.test, case.form) not in outcomes:
            continue
        model = Model(ir.from_proto(onnx.shape_inference.infer_shapes(case.model)))
        opset = model.opset
        if opset > backend.opset[1]:
            continue
        MarkEdgeKinds().run(model, Context(model=model))
        node = model.graph[0]
        passed = outcomes[case.test, case.form] == "ok"
        taken = RuleJudge(backend, FACTS, opset)(node).ok is not False
        counts[taken, passed] += 1
        if taken and not passed:
            print(f"taken, but {outcomes[case.test, case.form]}: {case.label}")
        refused[node.op_type] += passed and not taken
    print("refused, but ok:", ", ".join(f"{name} {n}" for name, n in refused.most_common() if n))
    for (taken, passed), count in sorted(counts.items(), reverse=True):
        print(f"{count:5} {'taken' if taken else 'refused'}, {'ok' if passed else 'failed'}")


def _policy(kind: str, name: str) -> Path | None:
    path = POLICIES / f"{name}.yaml"
    return path if kind == "policy" and path.is_file() else None


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
