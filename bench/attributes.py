"""Compare operators with odd attributes with ONNX, as a backend computes them: silent wrong answers without data.

    python bench/attributes.py [--backend cpu-bf16 ...] [--only LRN ...] [--json FILE]

Takes nodes of onnx's own tests, and changes one attribute at a time as `dovetail probe` does: fractions and negative
numbers, all words that an attribute may be, empty lists, other axes, left out; with extents that are known, and with
the first extent of every input open. The operator is kept in float32. The reference is ONNX Runtime without graph
optimizations, or the evaluator of the onnx package; a result is right if it is that of either.
"""

from __future__ import annotations

import argparse
import base64
import json
import pickle
import sys
import warnings

import dovetail
import numpy as np
import onnx
from sweeping import answers, references, summary

TOLERANCE = 2e-3  # of the largest value
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def jobs(only: list[str]) -> list[tuple[str, str, str, str]]:
    """Return operators, what was changed, and the pickled node with its inputs."""
    from dovetail_testing.probe.cases import ProbeCase, TestedNodes, case_of
    from dovetail_testing.probe.variations import attribute_changes, diverse

    found, tested = [], dict[str, list[ProbeCase]]()
    for part in TestedNodes(dovetail.load_plugins(), 26, only):
        for each in part:
            tested.setdefault(each.operator, []).append(each)
    for operator, cases in tested.items():
        if operator in RANDOM:
            continue
        samples = [case.sample for case in cases if case.sample is not None]
        seen: set[bytes] = set()
        for sample in diverse(samples):
            for what, changed in (("as tested", sample), *attribute_changes(sample, samples)):
                case = case_of(operator, what, changed)
                if case is None:
                    continue
                for extents in ("fixed", "open"):
                    proto = case.proto if extents == "fixed" else opened(case.proto)
                    if proto is None or (key := proto.SerializeToString(deterministic=True)) in seen:
                        continue
                    seen.add(key)
                    packed = base64.b64encode(pickle.dumps((key, dict(case.feeds)))).decode()
                    found.append((operator, what, extents, packed))
    return found


def opened(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model whose inputs have an open first extent, if that is possible."""
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    extents = [value.type.tensor_type.shape.dim for value in model.graph.input]
    if not any(extents):
        return None
    for dims in filter(None, extents):
        dims[0].dim_param = f"N{dims[0].dim_value}"
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # an extent that inference needs
        return None


def difference(right: list[np.ndarray], found: list[np.ndarray]) -> str:
    """Return how results differ; empty if they do not."""
    for number, (one, other) in enumerate(zip(right, found)):
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output {number} is {other.dtype}{list(other.shape)} for {one.dtype}{list(one.shape)}"
        if one.dtype.kind in "OSU":
            if not np.array_equal(one, other):
                return f"output {number} is other text"
            continue
        if one.dtype.kind not in "fiub":
            one, other = one.astype(np.float64), other.astype(np.float64)
        a, b = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return f"output {number} is finite elsewhere"
        largest = np.abs(a[finite]).max(initial=0.0)
        share = np.abs(a[finite] - b[finite]).max(initial=0.0) / (largest or 1.0)
        if share > TOLERANCE:
            return f"output {number} differs by {share:.2g} of its largest value"
    return ""


def kept_high(proto: onnx.ModelProto, backend: str, op_type: str) -> dovetail.CompiledModel:
    """Compile a model with its operator in float32, unless that is written as another one."""
    try:
        return dovetail.compile(proto, backend, verify=False, high=[f"type:{op_type}"])
    except dovetail.DovetailError as error:
        if "no node matches" not in error.message:
            raise
        return dovetail.compile(proto, backend, verify=False)


def serve(backend: str) -> None:
    """Run the jobs of standard input, one JSON list a line; print an answer for each."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        *_, packed = json.loads(line)
        content, feeds = pickle.loads(base64.b64decode(packed))
        proto = onnx.load_from_string(content)
        answer: dict[str, object] = {}
        rights = [right for right in references(proto, feeds) if right is not None]
        if rights:
            try:
                op_type = proto.graph.node[0].op_type
                result = kept_high(proto, backend, op_type)
                given = result.run(feeds)
                answer["placed"] = any(node.backend != "host" for node in result.plan.nodes)
                found = [given[value.name] for value in proto.graph.output]
                said = [difference(right, found) for right in rights]
                if all(said):
                    answer["differs"] = said[0]
            except Exception as error:
                answer["error"] = f"{type(error).__name__}: {str(error)[:160]}"  # it is not silent
        print(json.dumps(answer), flush=True)


def main() -> None:
    """Try all jobs on every backend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", nargs="+", default=["cpu-bf16"])
    parser.add_argument("--only", nargs="+", default=[], help="operators")
    parser.add_argument("--json", help="file for all answers")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    todo, everything = jobs(options.only), {}
    for backend in options.backend:
        everything[backend] = found = answers(__file__, backend, todo)
        print(summary(backend, found), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(everything, out, indent=1)


if __name__ == "__main__":
    main()
