"""Lower the operator tests of the onnx package, here and with onnx's own version converter, and count what comes out.

    python plugins/transforms/tools/compare.py [--opset 11] [--newest 22] [--sample 100]

Every test whose model is newer than the opset is lowered as it is and, in a second row, with all inputs but the first
as constants. Results are compared with those that the test expects, on ONNX Runtime or, where it has no kernel, on the
evaluator of the onnx package. The tables are those of `bench/RESULTS.md`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_proto
from dovetail_transforms.lowering import lower
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator

OUTCOMES = ("as written", "rewritten", "refused", "not run", "invalid", "wrong")
# Where the expected result is missed before lowering as well.
NOT_COMPARED = (
    "bernoulli", "training_dropout", "maxunpool_export_with_output_shape", "range_float16_type_positive_delta_expanded",
    "range_float_type_positive_delta_expanded", "range_int32_type_negative_delta_expanded",
    "resize_downsample_scales_cubic_align_corners", "resize_downsample_scales_linear_align_corners",
)  # fmt: skip


def cases(opset: int, newest: int) -> list[Any]:
    """Return the operator tests of the default domain that are newer than `opset`, and not newer than `newest`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return [case for case in found if opset < default_version(case.model) <= newest]


def default_version(model: onnx.ModelProto) -> int:
    """Return the version of the default domain that a model imports; 0 if it imports none."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def array(value: object) -> object:
    """Return a tensor as an array, anything else as it is."""
    found = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    return np.asarray(found) if isinstance(found, np.generic) else found


def source_of(case: Any, frozen: bool) -> tuple[onnx.ModelProto, dict[str, object]]:
    """Return a copy of the model of a case and its inputs; frozen, all inputs but the first are constants."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    given = dict(zip([value.name for value in model.graph.input], case.data_sets[0][0], strict=True))
    for name, value in list(given.items())[1:] if frozen else ():
        if isinstance(array(value), np.ndarray):
            model.graph.initializer.append(numpy_helper.from_array(array(value), name))
            del given[name]
    kept = [value for value in model.graph.input if value.name in given]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, 8)
    return model, {name: array(value) for name, value in given.items()}


def run(model: onnx.ModelProto, given: Mapping[str, object]) -> list[object] | None:
    """Return the results of a model; None if neither runner runs it."""
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, dict(given))
    except Exception:  # whatever a runner raises
        try:
            return ReferenceEvaluator(model).run(None, dict(given))
        except Exception:
            return None


def agrees(found: object, expected: object) -> bool:
    """Whether a result is the expected one; what is no numeric array always is."""
    if not isinstance(expected, np.ndarray) or expected.dtype.kind in "OUSV":
        return True
    if np.asarray(found).shape != expected.shape:
        return False
    a, b = np.asarray(found).astype(np.float64), expected.astype(np.float64)
    largest = np.abs(b[np.isfinite(b)]).max(initial=0)
    close = 0 if expected.dtype.kind in "biu" else 2e-3 if expected.dtype == np.float16 else 3e-4
    return np.allclose(a, b, rtol=close, atol=close * largest, equal_nan=True)


def ours(model: onnx.ModelProto, opset: int) -> tuple[onnx.ModelProto, bool] | None:
    """Lower with `dovetail-transforms`; None if it refuses."""
    try:
        lowered, remarks = lower(open_proto(model), opset)
    except DovetailError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        lowered.save(f"{folder}/lowered.onnx")
        proto = onnx.load(f"{folder}/lowered.onnx")
    return proto, any(remark.pass_ == "lower-opset" for remark in remarks)


def onnx_converter(model: onnx.ModelProto, opset: int) -> tuple[onnx.ModelProto, bool] | None:
    """Lower with onnx's version converter; None if it raises."""
    try:
        converted = onnx.version_converter.convert_version(onnx.shape_inference.infer_shapes(model), opset)
    except Exception:  # whatever its C++ side throws
        return None

    def written(one: onnx.ModelProto) -> list[tuple]:
        return [(node.op_type, len(node.input), sorted(a.name for a in node.attribute)) for node in one.graph.node]

    return converted, written(model) != written(converted)


Converter = Callable[[onnx.ModelProto, int], "tuple[onnx.ModelProto, bool] | None"]


def outcome(case: Any, frozen: bool, opset: int, convert: Converter) -> str:
    """Return what became of one test."""
    source, given = source_of(case, frozen)
    result = convert(source, opset)
    if result is None:
        return "refused"
    model, rewritten = result
    kind = "rewritten" if rewritten else "as written"
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception:  # whatever the checker raises
        return "invalid"
    if default_version(model) != opset:
        return "invalid"
    results = run(model, given)
    if results is None:
        return "not run" if run(source_of(case, frozen)[0], given) is None else "invalid"
    expected = map(array, case.data_sets[0][1])
    if case.name.removeprefix("test_").startswith(NOT_COMPARED) or all(map(agrees, results, expected)):
        return kind
    return "wrong"


def table(opset: int, chosen: Iterable[Any]) -> list[str]:
    """Return the lines of the table, and what is wrong or invalid."""
    chosen = list(chosen)
    bad: list[str] = []
    lines = ["| lowered by | inputs | " + " | ".join(OUTCOMES) + " |", "|---" * (len(OUTCOMES) + 2) + "|"]
    for name, convert in (("dovetail-transforms", ours), ("onnx's converter", onnx_converter)):
        for frozen in (False, True):
            found = {case.name: outcome(case, frozen, opset, convert) for case in chosen}
            counts = Counter(found.values())
            bad.extend(f"{name}, {kind}: {test}" for test, kind in found.items() if kind in ("wrong", "invalid"))
            row = [name, "constants" if frozen else "as in the test", *(str(counts[key]) for key in OUTCOMES)]
            lines.append(f"| {' | '.join(row)} |")
    return [*lines, "", *dict.fromkeys(bad)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--opset", type=int, default=11)
    parser.add_argument("--newest", type=int, default=onnx.defs.onnx_opset_version(), help="leave newer tests out")
    parser.add_argument("--sample", type=int, help="take that many tests, chosen by a seed")
    arguments = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    chosen = cases(arguments.opset, arguments.newest)
    if arguments.sample:
        chosen = random.Random(10).sample(chosen, arguments.sample)
    print(f"{len(chosen)} tests to opset {arguments.opset}\n")
    print("\n".join(table(arguments.opset, chosen)))


if __name__ == "__main__":
    main()
