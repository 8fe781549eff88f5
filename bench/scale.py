"""What comes out of large models: sizes of plan and remarks, and the time of `explain` and of recognizing a result.

    python bench/scale.py [--nodes 100000] [--backend cpu-bf16]

`growth` is the graph of growth.py, `chain` a chain of unnamed unary nodes without weights: no model is smaller for its
nodes. Every command is a process of its own; seconds are wall time, in brackets the processor's.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from growth import build
from measure import table
from onnx import TensorProto, helper


def chain(nodes: int) -> onnx.ModelProto:
    """`nodes` unary operators in a row."""
    operators = ("Relu", "Tanh", "Neg", "Abs", "Sigmoid")
    names = ["x", *(f"a{index}" for index in range(nodes))]
    made = [helper.make_node(operators[i % 5], [names[i]], [names[i + 1]]) for i in range(nodes)]
    borders = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in (names[0], names[-1])]
    graph = helper.make_graph(made, "chain", borders[:1], borders[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


class Run:
    """A command as a whole process: seconds, processor seconds and peak memory."""

    def __init__(self, *arguments: object):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        command = [sys.executable, "-m", "dovetail.cli.main", *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        self.seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.peak = usage.ru_maxrss << 10
        if status:
            raise SystemExit(f"{' '.join(map(str, arguments))} failed:\n{errors.decode()}")

    def __str__(self) -> str:
        return f"{self.seconds:.3g} ({self.processor:.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--backend", default="cpu-bf16")
    options = parser.parse_args()
    rows = []
    for name, make in (("growth", build), ("chain", chain)):
        with tempfile.TemporaryDirectory() as work:
            source, out = Path(work, f"{name}.onnx"), Path(work, "out")
            onnx.save(make(options.nodes), str(source))
            middle = f"a{options.nodes // 2}" if name == "chain" else f"add_{options.nodes // 20 * 10 + 2}"
            fresh = Run("compile", source, "--backend", options.backend, "-o", out)
            again = Run("compile", out / "model.onnx", "--backend", options.backend, "-o", Path(work, "again"))
            operator = "type:Softmax" if name == "growth" else "type:Relu"
            whole, one, kind = Run("explain", out), Run("explain", out, middle), Run("explain", out, operator)
            files = (source.name, "out/model.onnx", "out/plan.yaml", "out/remarks.json")
            size = {file: Path(work, file).stat().st_size for file in files}
            texts = size["out/plan.yaml"] + size["out/remarks.json"]
            rows.append({
                "model": f"{name}, {options.nodes} nodes",
                "MB": f"{size[source.name] / 1e6:.3g}",
                "plan and remarks / source": f"{texts / size[source.name]:.3g}",
                "/ result": f"{texts / size['out/model.onnx']:.3g}",
                "compile s": str(fresh),
                "recognized s": str(again),
                "recognized/compile": f"{again.seconds / fresh.seconds:.3g}",
                "explain s": str(whole),
                "one node": str(one),
                "a type": str(kind),
                "explain peak MB": f"{whole.peak / 1e6:.3g}",
            })  # fmt: skip
    table(rows)


if __name__ == "__main__":
    main()
