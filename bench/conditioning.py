"""What conditioning buys and costs: a model compiled as it is, and with the nodes that conditioning raises listed low.

    python bench/conditioning.py model.onnx data.npz --backend cpu-bf16 [--solver min-cut] [--calibrate] [--runs 40]

`data.npz` holds inputs. SNR is that of the worst float output against ONNX Runtime in float32; answers are the best of
the last axis of the first output. Times are of pairs of runs, one after the other, on the first `--batch` rows.
"""

from __future__ import annotations

import argparse
import statistics
import time

import dovetail
import numpy as np
import onnxruntime

# What the reasons of conditioning say, and no others do.
REASONS = ("whose digits cancel", "overflow float16 from 256 on", "may be as small as", "may underflow in", "near one",
           "from one", "times its result", "its result cancels")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--backend", default="cpu-bf16")
    parser.add_argument("--solver", default="forward")
    parser.add_argument("--calibrate", action="store_true", help="give the data when compiling, too")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--runs", type=int, default=40)
    args = parser.parse_args()
    feeds = dict(np.load(args.data))
    session = onnxruntime.InferenceSession(args.model)
    names = [output.name for output in session.get_outputs()]
    expected = dict(zip(names, session.run(names, feeds), strict=True))
    request = {"solver": args.solver, "verify": False, "data": feeds if args.calibrate else None}
    with_it = dovetail.compile(args.model, args.backend, **request)
    raised = [remark.node for remark in with_it.remarks if any(text in remark.why for text in REASONS)]
    raised = list(dict.fromkeys(filter(None, raised)))
    without = dovetail.compile(args.model, args.backend, low=raised, **request)
    print("| | nodes high | Casts | SNR dB | answers changed |\n|---|---|---|---|---|")
    for name, result in (("without", without), ("with", with_it)):
        found = result.run(feeds)
        high = sum(str(node.precision) == "float32" for node in result.plan.nodes)
        casts = sum(node.op_type == "Cast" for node in result.model.nodes())
        changed = (expected[names[0]].argmax(-1) != found[names[0]].argmax(-1)).sum()
        print(f"| {name} | {high} | {casts} | {worst(expected, found):.1f} | {changed} of {len(found[names[0]])} |")
    rows = {name: array[: args.batch] for name, array in feeds.items()}
    print(f"time of one run on {args.batch} rows, with to without: {ratio(with_it, without, rows, args.runs):.3f}")


def worst(expected, found) -> float:
    """The smallest SNR of the float outputs in dB."""
    ratios = []
    for name, array in expected.items():
        if array.dtype.kind == "f":
            noise = np.square(array - found[name], dtype=np.float64).sum()
            ratios.append(10 * np.log10(np.square(array, dtype=np.float64).sum() / max(noise, 1e-300)))
    return min(ratios)


def ratio(first, second, feeds, runs) -> float:
    """The median of the ratios of pairs."""
    first.run(feeds), second.run(feeds)
    return statistics.median(seconds(first, feeds) / seconds(second, feeds) for _ in range(runs))


def seconds(result, feeds) -> float:
    start = time.perf_counter()
    result.run(feeds)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
