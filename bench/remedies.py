"""What trying remedies costs: preparations and processor seconds of `dovetail.explain` on one node.

    python bench/remedies.py [--nodes 10000]

The models are `n200.onnx` and a chain of unary nodes. The backend leaves every Softmax to the host. Its strategy
suggests five pins, of which none helps; then comes the pin that is tried for every node, which helps. `plan s` is one
plan of the same model, for scale.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import dovetail
import onnx
from dovetail.plugin import hookimpl
from measure import table
from onnx import TensorProto, helper

FILE = """
backend: bench-npu
device: npu
opset: 13..26
dynamic: accept
precision: {low: float16, high: float32}
policies: fp16
types: {f: [float16, float32]}
unlisted: {types: f}
place: {strategy: bench-choosy}
emit: {engines: [onnxruntime-cpu]}
"""

STRATEGY = """
from dovetail.plugin import Claims, Remedy
from dovetail_placement.strategies.every_node import Autocast


class Choosy(Autocast):
    def claim(self, view, backend):
        return Claims([claim for claim in super().claim(view, backend).claims if claim.node.op_type != "Softmax"])

    def remedies(self, view, node):
        for _, other in zip(range(5), view.model.graph):
            yield Remedy(f"--pin {other.name}=bench-npu", pins=(f"{other.name}=bench-npu",))
"""


class Counting:
    """Counts the runs of passes by name."""

    dovetail_api = 1

    def __init__(self):
        self.runs = Counter()

    @hookimpl
    def before_pass(self, pass_):
        self.runs[pass_.name] += 1


def chain(nodes: int) -> onnx.ModelProto:
    """`nodes` unary operators in a row."""
    operators = ("Relu", "Tanh", "Neg", "Abs", "Softplus", "Relu", "Tanh", "Neg", "Abs", "Softmax")
    made = [helper.make_node(operators[i % 10], [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(nodes)]
    borders = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in ("v0", f"v{nodes}")]
    graph = helper.make_graph(made, "chain", borders[:1], borders[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def installed(folder: Path) -> dovetail.load_plugins:
    package = folder / "bench_npu"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "npu.yaml").write_text(FILE)
    (package / "choosy.py").write_text(STRATEGY)
    sys.path.insert(0, str(folder))
    plugins = dovetail.load_plugins()
    plugins.registry.backend("bench-npu", "bench_npu:npu.yaml")
    plugins.registry.strategy("bench-choosy", "bench_npu.choosy:Choosy")
    return plugins


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        plugins = installed(Path(folder))
        long = Path(folder) / f"chain_{args.nodes}.onnx"
        onnx.save(chain(args.nodes), long)
        for path in (Path(__file__).with_name("n200.onnx"), long):
            plan = dovetail.plan(path, "bench-npu", plugins=plugins)
            node = next(node.name for node in plan.nodes if node.operator == "Softmax")
            start = time.process_time()
            dovetail.plan(path, "bench-npu", plugins=plugins)
            planned = time.process_time() - start
            start = time.process_time()
            lines = dovetail.explain(plan, node, plugins=plugins)
            seconds = time.process_time() - start
            watched, counting = installed(Path(folder)), Counting()
            watched.attach(counting, "counting")
            dovetail.explain(plan, node, plugins=watched)
            rows.append({
                "model": path.stem,
                "tried": sum("tried" in line for line in lines),
                "preparations": counting.runs["normalize"],
                "explain s": f"{seconds:.3g}",
                "plan s": f"{planned:.3g}",
                "explain/plan": f"{seconds / planned:.3g}",
            })  # fmt: skip
    table(rows)


if __name__ == "__main__":
    main()
