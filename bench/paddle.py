"""Translating programs of Paddle to ONNX files: seconds, peak memory and nodes of whole processes, beside converters.

    python bench/paddle.py PROGRAM... [--peers PYTHON] [--repeat 5]

PYTHON is the interpreter of an environment with `paddle2onnx` (and `paddlepaddle`, which it needs) and `p2o`; what it
lacks, or what refuses a program, is left out. Each process reads a program with its parameters and writes one ONNX
file; ours without any optimization that the pipeline makes afterwards. `peak/weights` is the resident memory beyond
that of a process that has imported the same packages (`floor`), over the size of the parameters.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import table

OURS = """
import sys; from pathlib import Path; import dovetail
from dovetail_onnx.saving import save_model
save_model(dovetail.open(sys.argv[1]).runnable(), Path(sys.argv[2]))
"""
READ = "import sys, dovetail; dovetail.open(sys.argv[1]).runnable()"
FLOOR = """
import google.protobuf, ml_dtypes, onnx, onnx_ir, onnxruntime, yaml; from dovetail import load_plugins
load_plugins()
"""
PADDLE2ONNX = """
import sys, paddle2onnx; from pathlib import Path
program = Path(sys.argv[1])
paddle2onnx.export(str(program), str(program.with_suffix('.pdiparams')), sys.argv[2], opset_version=17, verbose=False)
"""


def process(command: list[str]) -> tuple[float, float] | None:
    """Seconds and peak megabytes of one process; None if it fails."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    return None if status else (time.perf_counter() - start, usage.ru_maxrss / 1024)


def nodes(path: Path) -> int:
    import onnx

    return len(onnx.load(path).graph.node)


def commands(program: Path, folder: Path, peers: Path | None) -> dict[str, list[str]]:
    found = {
        "floor": [sys.executable, "-c", FLOOR],
        "read": [sys.executable, "-c", READ, str(program)],
        "ours": [sys.executable, "-c", OURS, str(program), str(folder / "ours.onnx")],
    }
    if peers is not None:
        found["paddle2onnx"] = [str(peers), "-c", PADDLE2ONNX, str(program), str(folder / "paddle2onnx.onnx")]
        found["p2o"] = [
            str(peers.with_name("p2o")),
            str(program),
            str(program.with_suffix(".pdiparams")),
            str(folder / "p2o.onnx"),
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=Path)
    parser.add_argument("--peers", type=Path, help="the interpreter of an environment with the converters")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for program in options.programs:
        with tempfile.TemporaryDirectory() as folder:
            given = commands(program, Path(folder), options.peers)
            measured = {name: [process(command) for _ in range(options.repeat)] for name, command in given.items()}
            best = {name: min(runs)[0] for name, runs in measured.items() if None not in runs}
            peak = {name: min(run[1] for run in runs) for name, runs in measured.items() if None not in runs}
            weights = program.with_suffix(".pdiparams").stat().st_size / (1 << 20)
            row = {"program": program.stem, **{f"{name} s": seconds for name, seconds in best.items()}}
            row |= {f"{name} nodes": nodes(file) for name in best if (file := Path(folder, f"{name}.onnx")).exists()}
            beyond = {name: (peak[name] - peak["floor"]) / weights for name in ("read", "ours")}
            row |= {f"{name} peak/weights": share for name, share in beyond.items()}
            rows.append(row)
    table(rows)


if __name__ == "__main__":
    main()
