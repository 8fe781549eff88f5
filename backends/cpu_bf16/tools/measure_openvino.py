"""Measure what OpenVINO's CPU plugin refuses and what it computes wrongly.

    python measure_openvino.py results.jsonl [--only Conv]

Runs the operator tests of the onnx package (see `node_tests`) with `INFERENCE_PRECISION_HINT=f32`, in a process of
their own that is started again when it crashes or hangs. One JSON line per case; a table of failures at the end.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import sys
from pathlib import Path

import numpy as np
from dovetail.plugin import Tool, ToolEndedError
from node_tests import BF16, Case, cases

SECONDS = 20
ATOL = 1e-4
"""Float32 sums in another order differ by this much from the expected values."""


def main() -> None:
    """Run all cases and print what failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", help="one operator type")
    options = parser.parse_args()
    todo = [n for n, case in enumerate(_cases()) if options.only in (None, case.model.graph.node[0].op_type)]
    failures: collections.Counter[tuple[str, str, str]] = collections.Counter()
    worker = Tool.start(__file__, title="OpenVINO", timeout=SECONDS)
    with options.results.open("w") as out:
        for done, number in enumerate(todo, start=1):
            case = _cases()[number]
            try:
                outcome, detail = worker.ask("outcome_of", number=number)
            except ToolEndedError as error:
                outcome, detail = "timeout" if error.is_late else "crash", ""
            record = {**_features(case), "outcome": outcome, "detail": detail}
            out.write(json.dumps(record, default=str) + "\n")
            failures[record["op"], case.form, outcome] += outcome != "ok"
            print(f"\r{done}/{len(todo)}", end="", file=sys.stderr)
    worker.close()
    for (op, form, outcome), count in sorted(failures.items()):
        if count:
            print(f"{op:28} {form:14} {outcome:8} {count}")


@functools.cache
def _cases() -> list[Case]:
    return list(cases())


def outcome_of(number: int) -> list[str]:
    """Run one case; return its outcome and the engine's message."""
    return list(_outcome(_cases()[number]))


def _outcome(case: Case) -> tuple[str, str]:
    import openvino as ov

    step = "read"
    try:
        core = ov.Core()
        model = core.read_model(case.model.SerializeToString())
        step = "compile"
        request = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
        step = "run"
        for port in request.get_compiled_model().inputs:
            # Unused inputs are removed, and the input of a dropped operator has the name of its output.
            name = next((name for name in port.get_names() if name in case.inputs), next(iter(case.inputs)))
            request.set_tensor(port, _tensor(ov, np.asarray(case.inputs[name])))
        request.infer()
        for index, expected in enumerate(case.outputs):
            got = request.get_output_tensor(index)
            verdict = _compare(got.data.view(BF16) if got.element_type == ov.Type.bf16 else got.data, expected, case)
            if verdict[0] != "ok":
                return verdict
    except Exception as error:
        return step, " ".join(str(error).split())[-400:]
    return "ok", ""


def _tensor(ov, array: np.ndarray):
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype == BF16:
        return ov.Tensor(array.view(np.uint16), list(array.shape), ov.Type.bf16)
    return ov.Tensor(array)


def _viewed(got: np.ndarray, expected: object) -> np.ndarray:
    """Return an array for the binding, which represents eight-bit floats as bytes."""
    dtype = np.asarray(expected).dtype
    return got.view(dtype) if dtype.kind == "V" and dtype.itemsize == got.dtype.itemsize and got.ndim else got


def _compare(got: np.ndarray, expected: object, case: Case) -> tuple[str, str]:
    expected, got = np.asarray(expected), _viewed(got, expected)
    low = BF16 in (got.dtype, expected.dtype)
    if got.dtype != expected.dtype and not low:
        return "type", f"{got.dtype} for {expected.dtype}"
    if got.shape != expected.shape:
        return "shape", f"{got.shape} for {expected.shape}"
    if expected.dtype.kind in "fV":
        rtol = max(case.rtol, 3e-2 if low else 5e-3 if expected.dtype == np.float16 else 0)
        same = np.allclose(
            got.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=max(case.atol, ATOL), equal_nan=True
        )
    elif expected.dtype.kind in "iu" and case.form.startswith("bf16"):
        same = np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=0, atol=2)
    else:
        same = np.array_equal(got, expected)
    return ("ok", "") if same else ("values", f"got {got.ravel()[:4]} for {expected.ravel()[:4]}")


def _features(case: Case) -> dict:
    """Describe a case: operator, opset, form, attributes, and type and shape of every input."""
    from onnx import helper

    node = case.model.graph.node[0]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return {
        "op": f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
        "test": case.test,
        "form": case.form,
        "opset": max(entry.version for entry in case.model.opset_import),
        "attributes": {k: v if isinstance(v, (int, float, list)) else str(v)[:40] for k, v in attributes.items()},
        "inputs": [
            f"{np.asarray(v).dtype}{list(np.asarray(v).shape)}" if isinstance(v, np.ndarray) else type(v).__name__
            for v in case.inputs.values()
        ],
        "given": [bool(name) for name in node.input],
        "outputs": len(node.output),
    }


if __name__ == "__main__":
    main()
