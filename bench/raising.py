"""Nodes of every version of every operator raised to the newest opset, here and by onnx's version converter.

    python bench/raising.py [--newest 22]

The nodes are those of `tests/conformance`: forms of old, and the operator tests of the onnx package declared as of
every older opset that takes them. Results before are those of ONNX Runtime without optimization, else of the evaluator
of the onnx package, else what the operator's text says; those after must agree.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.version_converter
from dovetail_transforms.canonicalize.opsets import default_version, set_default_version
from dovetail_transforms.raising import NotRaised, raise_opset

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
warnings.simplefilter("ignore")

from conformance import test_raising as sweep  # noqa: E402
from conformance.executing import array  # noqa: E402

OUTCOMES = ("same", "refused", "invalid", "not run", "wrong")


def ours(model: onnx.ModelProto, opset: int) -> onnx.ModelProto | None:
    """Raise a model here; None if that is refused."""
    raised = onnx.ModelProto.FromString(model.SerializeToString())
    try:
        raise_opset(raised, default_version(model.opset_import), opset)
    except NotRaised:
        return None
    set_default_version(raised, opset)
    return raised


def onnx_converter(model: onnx.ModelProto, opset: int) -> onnx.ModelProto | None:
    """Raise a model with onnx's converter; None if it raises an error."""
    try:
        return onnx.version_converter.convert_version(model, opset)
    except Exception:  # whatever its C++ side throws
        return None


def outcome(model, given, before, raised: onnx.ModelProto | None, opset: int) -> str:
    """Return what became of one model."""
    if raised is None:
        return "refused"
    raised.ir_version = max(8, onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset), 8))
    try:
        sweep.check(raised)
    except Exception:
        return "invalid"
    after = sweep.results_of(raised, given)
    if not after:
        return "not run"
    try:
        if sweep.RUNTIME in before and sweep.RUNTIME in after:
            sweep.assert_all_agree(after[sweep.RUNTIME], before[sweep.RUNTIME])
        else:
            sweep.assert_any_agrees(after, before)
    except (AssertionError, ValueError):
        return "wrong"
    return "same"


def models(newest: int) -> Iterator[tuple]:
    """Yield a model, its inputs and its results, for every node in every older opset."""
    for case, opset in sweep.ROWS:
        if opset < newest:
            model, given = sweep.model_of(case, opset)
            expected = case.results()
            before = sweep.results_of(model, given)
            if expected is not None and sweep.RUNTIME not in before:
                before = {"text": expected}
            if before:
                sweep.declare(model, map(array, next(iter(before.values()))))
                if sweep.is_valid(model):
                    yield model, given, before
    for case in sweep.NODE_TESTS:
        for opset in sweep.redeclared(case):
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            set_default_version(model, opset)
            meant = all(opset >= sweep.OTHER_MEANING.get(op, 0) for op in sweep.operators(model))
            if opset < newest and meant and sweep.is_valid(model) and not sweep.operators(model) & sweep.RANDOM:
                inputs = zip([value.name for value in model.graph.input], map(array, case.data_sets[0][0]), strict=True)
                given = dict(inputs)
                if before := sweep.results_of(model, given):
                    yield model, given, before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--newest", type=int, default=22)
    options = parser.parse_args()
    counts = {"dovetail-transforms": Counter(), "onnx's converter": Counter()}
    wrong: dict[str, Counter] = {name: Counter() for name in counts}
    number = 0
    for model, given, before in models(options.newest):
        number += 1
        for name, convert in (("dovetail-transforms", ours), ("onnx's converter", onnx_converter)):
            kind = outcome(model, given, before, convert(model, options.newest), options.newest)
            counts[name][kind] += 1
            if kind in ("wrong", "invalid"):
                wrong[name].update(sweep.operators(model))
    print(f"{number} nodes, raised to opset {options.newest}\n")
    print("| raised by |", " | ".join(OUTCOMES), "|\n|---" + "|---" * len(OUTCOMES) + "|")
    for name, found in counts.items():
        print(f"| {name} |", " | ".join(str(found[kind]) for kind in OUTCOMES), "|")
    for name, found in wrong.items():
        print(f"\n{name}, wrong or invalid:", ", ".join(f"{op} {count}" for op, count in found.most_common()))


if __name__ == "__main__":
    main()
