"""10,000 models on 100 machines, on paper: measured costs of the steps, and a simulation of what follows from them.

    python bench/many_machines.py [--models 10000] [--machines 100] [--nodes 400]

Measured here: the start of a worker's process with its first model, a model after that, and a task that does nothing,
on a dask cluster of two local workers. Simulated: models whose times are log-normal around the measured one (sigma 1,
so that the longest of 10,000 takes some 40 times the median), the largest first, as `compile FOLDER --cluster` sends
them, and as they come; machines that are lost, each costing the task that it does and a start.
"""

from __future__ import annotations

import argparse
import heapq
import os
import tempfile
import time
from pathlib import Path

import dovetail
import numpy as np
import onnx
from growth import build
from measure import table


def nothing(number: int) -> int:
    return number


def measured(nodes: int) -> dict[str, float]:
    """Processor seconds of a worker's first and of later models, and seconds of a task that does nothing."""
    from distributed import Client, LocalCluster
    from dovetail_commands.folder_processes import FolderProcess

    with tempfile.TemporaryDirectory() as work:
        folder = Path(work, "models")
        folder.mkdir()
        for number in range(8):
            onnx.save(build(nodes + number), str(folder / f"net{number}.onnx"))
        process = FolderProcess(())
        took = []
        for number in range(8):
            job = {
                "folder": str(folder), "model": f"net{number}.onnx", "output": str(Path(work, "out", str(number))),
                "data": None, "external": None, "backends": ["cpu-bf16"], "options": {},
            }  # fmt: skip
            before = _cpu(process._tool._process.pid) if number else 0.0  # it starts with its first job
            process.ask(job)
            took.append(_cpu(process._tool._process.pid) - before)
        process.end()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.gather(client.map(nothing, range(100), pure=False))
        start = time.perf_counter()
        client.gather(client.map(nothing, range(2000), pure=False))
        task = (time.perf_counter() - start) / 2000
    later = float(np.median(took[1:]))
    return {"start of a worker": took[0] - later, "a model": later, "a task of the scheduler": task}


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def makespan(times: np.ndarray, machines: int, start: float, task: float, lost: float, seed: int = 0) -> float:
    """Seconds until all models are done; each goes to the machine that is free first, and one is sent at a time.

    Args:
        times: Seconds of each model, in the order in which they are sent.
        machines: Their number.
        start: Seconds of a machine's start.
        task: Seconds that the scheduler takes for a task.
        lost: Machines that are lost in an hour, of each.
    """
    rng = np.random.default_rng(seed)
    free = [(start, number) for number in range(machines)]
    heapq.heapify(free)
    ends, sent = 0.0, 0.0
    waiting = list(times[::-1])
    while waiting:
        took = waiting.pop()
        at, number = heapq.heappop(free)
        sent = max(sent + task, at)
        end = sent + took
        if rng.random() < lost * took / 3600:
            waiting.append(took)  # and what was done of it is gone
            end = sent + took * rng.random() + start
        else:
            ends = max(ends, end)
        heapq.heappush(free, (end, number))
    return ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=400)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    assert dovetail.load_plugins()
    costs = measured(options.nodes)
    table([{"step": name, "s": seconds} for name, seconds in costs.items()])
    print()
    times = costs["a model"] * np.random.default_rng(1).lognormal(0, 1, options.models)
    rows = []
    for machines in (1, 2, 10, options.machines, 10 * options.machines):
        for order, sent in (("largest first", np.sort(times)[::-1]), ("as they come", times)):
            for lost in (0.0, 1.0):
                took = makespan(sent, machines, costs["start of a worker"], costs["a task of the scheduler"], lost)
                rows.append({
                    "machines": machines, "order": order, "lost per machine and hour": lost, "minutes": took / 60,
                    "of all machines' time": float(times.sum()) / machines / took,
                })  # fmt: skip
    table(rows)


if __name__ == "__main__":
    main()
