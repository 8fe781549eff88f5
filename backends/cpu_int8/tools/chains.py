"""Chains of quantized operators in OpenVINO, compared with the exact arithmetic of the same file.

    python chains.py results.jsonl                            every operator alone, between two products
    python chains.py results.jsonl --length 2                 every pair; --length 3 --sample 2000: some triples
    python chains.py results.jsonl --as-written               OpenVINO alone, without the engine's repairs
    python chains.py results.jsonl --backend cpu-int8:activations=asymmetric

Each chain is compiled for the backend on random data, so that Q and DQ stand where it puts them. The reference is ONNX
Runtime without optimizers: it computes floats between QuantizeLinear and DequantizeLinear, as ONNX defines them.
OpenVINO's transformations move scales, so a tie may fall to the other side, and it leaves a rounding out where it adds
two products. So a chain is wrong if OpenVINO is further from the float model than the reference by a quarter, and off
by more than two steps from the reference.

One line of JSON per chain that is wrong, refused or ends the process, and a table of the operators in these.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import json
import random
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[2] / "cpu_bf16" / "tools"))

from sweep import Worker

_FAILED = ("wrong", "refused", "crash", "timeout")
_TIES = 2.0  # steps of 8 bits that ties on the way may cost
_WORSE = 1.25


def main() -> None:
    """Run the chains and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--length", type=int, default=1)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="cpu-int8")
    parser.add_argument("--as-written", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="chains with one of these operators")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    guilty: collections.Counter[str] = collections.Counter()
    tried: collections.Counter[str] = collections.Counter()
    given = {"backend": options.backend, "as_written": options.as_written}
    worker = Worker(__file__, seed=options.seed, **given)
    with options.results.open("w") as out:
        for names in sequences(options):
            outcome, why = worker(names=list(names))
            counts[outcome] += 1
            tried.update(set(names))
            if outcome in _FAILED:
                guilty.update(set(names))
                print(json.dumps({"operators": names, "outcome": outcome, "why": why}), file=out, flush=True)
    worker.close()
    print(", ".join(f"{outcome} {count}" for outcome, count in sorted(counts.items())))
    print("\n| operator | chains | failed |\n|---|---|---|")
    for name, count in sorted(guilty.items(), key=lambda item: -item[1] / tried[item[0]]):
        print(f"| {name} | {tried[name]} | {count} |")


def sequences(options: argparse.Namespace) -> list[tuple[str, ...]]:
    """Return the sequences to try."""
    from chain_operators import OPERATORS

    if options.sample:
        chosen = random.Random(options.seed)
        found = [tuple(chosen.choices(list(OPERATORS), k=options.length)) for _ in range(options.sample)]
    else:
        found = list(itertools.product(OPERATORS, repeat=options.length))
    return [names for names in found if not options.only or set(names) & set(options.only)]


@functools.cache
def _plugins():
    import dovetail

    return dovetail.load_plugins()


def checked(seed: int, names: list[str], backend: str, as_written: bool) -> list[str]:
    """Return outcome and explanation of one chain."""
    from chain_operators import Impossible

    try:
        return list(check(seed, names, backend, as_written))
    except Impossible as error:
        return ["skipped", str(error)]
    except Exception as error:
        return ["refused", f"{type(error).__name__}: {error}"[:300]]


def check(seed: int, names: list[str], backend: str, as_written: bool) -> tuple[str, str]:
    """Compile one chain, with a product before and behind it, and compare what OpenVINO computes."""
    import dovetail
    import onnx_ir
    from chain_operators import OPERATORS, Chain, Impossible

    chain = Chain(seed)
    OPERATORS["conv 3x3"](chain)
    for name in names:
        OPERATORS[name](chain)
    OPERATORS["conv 3x3" if len(chain.shape) == 4 else "matmul"](chain)
    source = chain.model()
    rng = np.random.default_rng(seed + 1)
    data = [{"x": rng.standard_normal(chain.given).astype(np.float32)} for _ in range(17)]
    try:
        exact = run_exactly(source.SerializeToString(), data[16])
    except Exception as error:  # a window that is larger than its data
        raise Impossible(str(error)[:200]) from error
    request = {"data": data[:16], "verify": False, "try_engines": False, "refine": "none"}
    compiled = dovetail.compile(source, [backend], plugins=_plugins(), **request)
    content = onnx_ir.to_proto(compiled.model.ir).SerializeToString()
    reference, found = run_exactly(content, data[16]), run_in_openvino(content, data[16], as_written)
    if found.shape != reference.shape:
        return "wrong", f"the shape is {found.shape} in place of {reference.shape}"
    step = 2 * np.abs(reference).max() / 255
    ours, theirs = np.abs(found - reference), np.abs(reference - exact)
    worse = _root(np.abs(found - exact)) / max(_root(theirs), 1e-12)
    why = f"off by {ours.max() / step:.2f} steps, {worse:.2f} times as far from the floats"
    bad = not np.isfinite(found).all() or worse > _WORSE and ours.max() > _TIES * step
    return "wrong" if bad else "right", why


def run_exactly(model: bytes, feeds: dict) -> np.ndarray:
    """Run a model in ONNX Runtime as ONNX defines it: no optimizer fuses anything."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def run_in_openvino(model: bytes, feeds: dict, as_written: bool) -> np.ndarray:
    """Run a model in OpenVINO, alone or by the engine."""
    import dovetail
    import onnx
    import openvino
    from dovetail.plugin import RegionModel

    if as_written:
        config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
        compiled = openvino.Core().compile_model(openvino.Core().read_model(model), "CPU", config)
        return np.array(compiled(feeds)[0])
    opened = dovetail.open(onnx.load_from_string(model))
    session = _plugins().registry.engine["openvino-cpu-int8"]().load(RegionModel(opened), {"threads": 1})
    return next(iter(session.run(feeds).values()))


def _root(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors.astype(np.float64) ** 2)))


if __name__ == "__main__":
    main()
