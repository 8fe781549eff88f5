"""CPU seconds of compiling for integer backends with data, against gpu-fp16 and against the engine alone.

    python bench/integer_cost.py [--nodes 1000 4000] [--backends ppl-int8 ...] [--repeat 3] [--passes] [--before PYTHON]

The graphs are those of `growth.py`, with one sample as data. `seconds` is the whole process of `dovetail compile`, the
minimum over turns in which all backends alternate; `of gpu-fp16` divides it by that of gpu-fp16. `engine` is what no
compilation can save: a process that imports the engine, loads the saved result and runs it once (OpenVINO for cpu-int8
with its low-precision transformations, ONNX Runtime for the others); `beyond the engine` subtracts it from both sides
of the ratio. With `--before`, the same command of another environment runs in the same turns. `--passes` adds the CPU
seconds of the longest passes, from a process of their own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from growth import build
from measure import alone, table
from processor import seconds

_FLOATS = "gpu-fp16"
_LONGEST = 6  # passes in the table

_OPENVINO = """
import numpy as np, openvino as ov, sys
core = ov.Core()
low = {"INFERENCE_PRECISION_HINT": "f32", "LP_TRANSFORMS_MODE": True, "PERFORMANCE_HINT": "LATENCY"}
compiled = core.compile_model(core.read_model(sys.argv[1]), "CPU", low)
compiled(dict(np.load(sys.argv[2])))
"""
_ONNXRUNTIME = """
import numpy as np, onnxruntime as ort, sys
settings = ort.SessionOptions()
settings.log_severity_level = 3
ort.InferenceSession(sys.argv[1], settings, providers=["CPUExecutionProvider"]).run(None, dict(np.load(sys.argv[2])))
"""


def passes(model: Path, backend: str, data: Path) -> dict:
    """CPU seconds of one compilation by pass; what no pass takes is `rest`."""
    import dovetail
    from dovetail.plugin import hookimpl, load_plugins

    class Clock:
        """A plugin that reads the process's clock around every pass."""

        dovetail_api = 1

        def __init__(self) -> None:
            self.seconds: Counter[str] = Counter()
            self._start = 0.0

        @hookimpl
        def before_pass(self) -> None:
            """Start the clock."""
            self._start = time.process_time()

        @hookimpl
        def after_pass(self, pass_) -> None:
            """Add what the pass and the verifier took."""
            self.seconds[pass_.name] += time.process_time() - self._start

    plugins, clock = load_plugins(), Clock()
    plugins.attach(clock, "clock")
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        dovetail.compile(model, backend, data=data, plugins=plugins, keep=lambda compiled: compiled.save(folder))
    whole = time.process_time() - start
    return {**clock.seconds, "rest": whole - clock.seconds.total()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", nargs="+", type=int, default=[1000, 4000])
    backends = ["cpu-int8", "ppl-int8", "bpu-int8:march=bayes,observer=minmax", "bpu-int8:march=bayes"]
    parser.add_argument("--backends", nargs="+", default=backends)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--passes", action="store_true")
    parser.add_argument("--before", type=Path, help="the interpreter of an environment with another state")
    options = parser.parse_args()
    pythons = {"seconds": Path(sys.executable), **({"before": options.before} if options.before else {})}
    rows, longest = [], []
    for nodes in options.nodes:
        with tempfile.TemporaryDirectory() as folder:
            model, data = Path(folder, f"g{nodes}.onnx"), Path(folder, "data.npz")
            onnx.save(build(nodes), str(model))
            np.savez(data, x=np.random.default_rng(0).normal(size=(1, 8, 8, 8)).astype(np.float32))
            found = _measured(model, data, (_FLOATS, *options.backends), pythons, options.repeat)
            rows += [{"nodes": nodes, **row} for row in found]
            if options.passes:
                for backend in (_FLOATS, *options.backends):
                    by_pass = Counter(alone(passes, model, backend, data)).most_common(_LONGEST)
                    text = ", ".join(f"{name} {taken:.2f}" for name, taken in by_pass)
                    longest.append({"nodes": nodes, "backend": backend, "longest": text})
    table(rows)
    if longest:
        print()
        table(longest)


def _measured(model: Path, data: Path, backends: tuple[str, ...], pythons: dict, repeat: int) -> list[dict]:
    """A row per backend: the least seconds of all its processes, and their ratios to the first backend's."""
    taken: dict[str, dict[str, list[float]]] = {backend: {} for backend in backends}
    for _ in range(repeat):
        for number, backend in enumerate(backends):
            out = model.with_name(f"out{number}")
            for what, python in pythons.items():
                program = python.with_name("dovetail")  # not resolved: the interpreter of an environment is a link
                command = (program, "compile", model, "--backend", backend, "--data", data)
                to = out if what == "seconds" else model.with_name(f"{what}{number}")
                taken[backend].setdefault(what, []).append(seconds(*command, "-o", to))
            engine = _OPENVINO if backend.startswith("cpu-") else _ONNXRUNTIME
            run = seconds(sys.executable, "-c", engine, out / "model.onnx", data)
            taken[backend].setdefault("engine", []).append(run)
    least = {backend: {what: min(runs) for what, runs in found.items()} for backend, found in taken.items()}
    floats = least[backends[0]]
    rows = []
    for backend, row in least.items():
        beyond = (row["seconds"] - row["engine"]) / (floats["seconds"] - floats["engine"])
        ratios = {f"{what} of {backends[0]}": row[what] / floats[what] for what in pythons}
        rows.append({"backend": backend, **row, **ratios, "beyond the engine": beyond})
    return rows


if __name__ == "__main__":
    main()
