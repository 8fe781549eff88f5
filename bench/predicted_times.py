"""Predicted times of trained nets beside measured ones: what `dovetail profile` says of an engine, and what nets take.

    python bench/predicted_times.py --wheels FOLDER [--nets NAME ...] [--backends host cpu-bf16 cpu-int8]

Each backend is profiled first, in a folder of its own. A net is compiled with the extents of its first input; the
prediction is the sum over its regions, and the time the least of 15 runs, on as many threads as the engine likes: for
one, run it under `taskset -c 0`. The last line has the rank correlation of predictions and times over all rows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import dovetail
import numpy as np
from dovetail.cli.main import main as dovetail_command
from dovetail_report.collect.document import document
from measure import table
from trained import NETS
from trained_nets.wheels import Wheels

DEFAULT = ("page orientation", "captcha CRNN", "open NSFW", "PP-OCRv2 direction", "NudeNet 320n", "AECMOS")
INPUTS, RUNS = 8, 15


def rows(name: str, backends: list[str], wheels: Wheels) -> list[dict]:
    """A row per backend."""
    net = NETS[name]
    model = wheels.file(net.wheel, net.path)
    inputs = [stream[0] for stream in net.streams(wheels)][:INPUTS]
    data = {key: np.concatenate([feeds[key] for feeds in inputs]) for key in inputs[0]}
    shapes = {key: list(array.shape) for key, array in inputs[0].items()}
    found = []
    for backend in backends:
        given = {"data": data} if "int8" in backend else {}
        compiled = dovetail.compile(model, backend, fix_shapes=shapes, verify=False, **given)
        compiled.run(inputs[0])
        least = float("inf")
        for _ in range(RUNS):
            begun = time.perf_counter()
            compiled.run(inputs[0])
            least = min(least, time.perf_counter() - begun)
        predicted = [row["ms"] for row in document(compiled)["predicted"]]
        complete = len(predicted) == len(compiled.regions)
        found.append({
            "net": name, "backend": backend, "ms": 1e3 * least, "predicted ms": sum(predicted) if complete else None,
            "over": sum(predicted) / (1e3 * least) if complete else None,
        })  # fmt: skip
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=DEFAULT, metavar="NAME")
    parser.add_argument("--backends", nargs="+", default=["host", "cpu-bf16", "cpu-int8"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DOVETAIL_PROFILES"] = folder
        for backend in dict.fromkeys(["host", *options.backends]):
            file = Path(folder, f"{backend}.costs.yaml")
            if dovetail_command(["profile", backend, "-o", str(file)]):
                raise SystemExit(f"{backend} cannot be profiled")
        found = [row for name in options.nets for row in rows(name, options.backends, Wheels(options.wheels))]
    table([
        {key: f"{value:.2f}" if isinstance(value, float) else value or "" for key, value in row.items()}
        for row in found
    ])  # fmt: skip
    known = [(row["ms"], row["predicted ms"]) for row in found if row["predicted ms"]]
    ranks = [np.argsort(np.argsort(column)) for column in zip(*known, strict=True)]
    print(f"\nrank correlation {np.corrcoef(*ranks)[0, 1]:.2f} over {len(known)} rows")


if __name__ == "__main__":
    main()
