"""Calibration of many samples in files: in this process, and by the workers of a dask cluster on parts of them.

    python bench/calibration_parts.py [--samples 10000] [--each 100] [--nodes 60] [--extent 32] [--above DB]

The net is a chain of convolutions, additions and Relus on images, for cpu-int8 without verification. With `--above`, it
is compiled for cpu-bf16 with a goal that is so many decibels above what that reaches, which takes a search. `times as
fast` is the time of one worker over that. `longest path` is the processor time of this process and of the busiest
worker, which other programs change less; `same plan` says whether plans are equal byte for byte. Every worker has a
core of its own, as if it were a machine. The cluster is started before its time counts, and every worker has compiled
once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import dovetail
import numpy as np
import onnx
from measure import table
from onnx import TensorProto, helper, numpy_helper


def build(nodes: int, extent: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    made, weights, value = [], [], "x"
    while len(made) < nodes:
        at = len(made)
        weights.append(numpy_helper.from_array(rng.normal(0, 0.08, (16, 16, 3, 3)).astype(np.float32), f"w{at}"))
        made.append(helper.make_node("Conv", [value, f"w{at}"], [f"c{at}"], f"conv{at}", pads=[1, 1, 1, 1]))
        made.append(helper.make_node("Add", [f"c{at}", value], [f"a{at}"], f"add{at}"))
        made.append(helper.make_node("Relu", [f"a{at}"], [f"r{at}"], f"relu{at}"))
        value = f"r{at}"
    shape = ["N", 16, extent, extent]
    borders = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", value)]
    graph = helper.make_graph(made, "chain", borders[:1], borders[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def measured(
    model: Path, data: Path, address: str | None, client: object, goal: float | None
) -> tuple[float, float, str]:
    """Seconds by the clock, processor seconds of this process and the busiest worker, and the plan."""
    before = client.run(time.process_time) if client is not None else {}
    start, here = time.perf_counter(), time.process_time()
    if goal is None:
        how = {"verify": False, "refine": "none", "try_engines": False}
        compiled = dovetail.compile(model, "cpu-int8", data=str(data), executor=address, **how)
    else:
        how = {"min_snr": goal}
        compiled = dovetail.compile(model, "cpu-bf16", data=str(data), executor=address, **how)
    seconds, here = time.perf_counter() - start, time.process_time() - here
    after = client.run(time.process_time) if client is not None else {}
    there = max((after[name] - before[name] for name in before), default=0.0)
    return seconds, here + there, str(compiled.plan)


def keep_to(core: int) -> None:
    """Keep all threads of this process, and those that they start, to one core, as if it were a machine."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=100, help="samples in a file")
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--extent", type=int, default=32)
    parser.add_argument("--above", type=float, metavar="DB")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    from distributed import Client, LocalCluster

    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as work:
        model, data = Path(work, "net.onnx"), Path(work, "data")
        onnx.save(build(options.nodes, options.extent), model)
        few = Path(work, "few")
        rng = np.random.default_rng(1)
        shape = (options.each, 16, options.extent, options.extent)
        for number in range(options.samples // options.each):
            for folder in (data, few) if number < 4 else (data,):
                folder.mkdir(exist_ok=True)
                np.savez(folder / f"{number:05}.npz", x=rng.standard_normal(shape).astype(np.float32))
        rows, expected, goal = [], None, None
        keep_to(cores[0])
        if options.above is not None:
            goal = dovetail.compile(model, "cpu-bf16", data=str(few)).verification.worst_snr_db + options.above
        for name, workers in {"this process": 0, "1 worker": 1, "2 workers": 2}.items():
            if not workers:
                seconds, path, plan = measured(model, data, None, None, goal)
            else:
                with (
                    LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
                    Client(cluster) as client,
                ):
                    for number, worker in enumerate(sorted(client.scheduler_info()["workers"])):
                        client.run(keep_to, cores[number % len(cores)], workers=[worker])
                    measured(model, few, cluster.scheduler_address, client, goal)
                    seconds, path, plan = measured(model, data, cluster.scheduler_address, client, goal)
            expected = expected or plan
            rows.append({"on": name, "seconds": seconds, "longest path": path, "same plan": plan == expected})
        for row in rows:
            row["times as fast"] = rows[1]["seconds"] / row["seconds"]
            row["by the path"] = rows[1]["longest path"] / row["longest path"]
    table(rows)


if __name__ == "__main__":
    main()
