"""Compiling chains of convolutions, and one value with many readers, on backends that compute in integers.

    python bench/readers.py [--backend NAME ...] [--nodes N ...]

Each compilation runs in a process of its own. Prints CPU seconds and the peak of memory, and the ratio of seconds to
those of gpu-fp16, which reads no data, with the same net.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time

import numpy as np
from measure import table
from onnx import TensorProto, helper, numpy_helper

BASE = "gpu-fp16"


def net(kind: str, count: int):
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(0, 0.5, (4, 4, 1, 1)).astype(np.float32), "w")
    nodes, value, outputs = [helper.make_node("Conv", ["x", "w"], ["a"], name="first")], "a", []
    for number in range(count):
        nodes.append(helper.make_node("Conv", [value, "w"], [f"v{number}"], name=f"conv_{number}"))
        if kind == "chain":
            value = f"v{number}"
        else:
            outputs.append(f"v{number}")
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 4, 4]) for n in ["x", *(outputs or [value])]]
    graph = helper.make_graph(nodes, kind, infos[:1], infos[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measured(kind: str, count: int, backend: str) -> tuple[float, float]:
    import dovetail

    data = {"x": np.ones((1, 4, 4, 4), np.float32)} if "int8" in backend else None
    model, started = net(kind, count), time.process_time()
    dovetail.compile(model, backend, data=data)
    return time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", nargs="+", default=["ppl-int8", "bpu-int8"])
    parser.add_argument("--nodes", nargs="+", type=int, default=[1000, 5000])
    options = parser.parse_args()
    rows = []
    for kind in ("chain", "readers"):
        for count in options.nodes:
            base = None
            for backend in (BASE, *options.backend):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    seconds, peak = pool.apply(measured, (kind, count, backend))
                base = base or seconds
                row = {"net": kind, "nodes": count, "backend": backend, "CPU s": round(seconds, 1)}
                rows.append({**row, f"over {BASE}": round(seconds / base, 1), "peak MB": round(peak)})
    table(rows)


if __name__ == "__main__":
    main()
