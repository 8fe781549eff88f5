"""Is every pass linear? The same kind of graph with more and more nodes.

    python bench/growth.py [--nodes 1000 10000 100000] [--backend cpu-bf16] [--repeat 1]

The graph repeats a block of ten nodes (convolutions, residual additions, a softmax between reshapes) in which one node
is a Max. The last column of every pass is its time at the largest size over its time at the one before, which should
be near the ratio of their nodes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
from compile import ours
from measure import alone, median, table
from onnx import TensorProto, helper, numpy_helper


def build(nodes: int) -> onnx.ModelProto:
    """A graph of about `nodes` nodes with random weights."""
    rng = np.random.default_rng(0)
    made, weights = [], []

    def weight(name: str, array: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(array.astype(np.float32) if array.dtype.kind == "f" else array, name))
        return name

    def node(operator: str, *inputs: str, **attributes) -> str:
        name = f"{operator.lower()}_{len(made)}"
        made.append(helper.make_node(operator, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    flat, image = weight("flat", np.array([1, 8, 64])), weight("image", np.array([1, 8, 8, 8]))
    zero, value, block = weight("zero", np.zeros(1)), "x", 0
    while len(made) < nodes:
        wide = node("Conv", value, weight(f"w{block}", rng.normal(0, 0.1, (8, 8, 3, 3))), pads=[1, 1, 1, 1])
        both = node("Concat", node("Add", node("Max", wide, zero), value), wide, axis=1)
        bias = weight(f"b{block}", rng.normal(0, 0.1, 8))
        narrow = node("Conv", both, weight(f"v{block}", rng.normal(0, 0.2, (8, 16, 1, 1))), bias)
        shares = node("Reshape", node("Softmax", node("Reshape", narrow, flat), axis=-1), image)
        scaled = node("Mul", shares, weight(f"s{block}", np.full(1, 32.0)))
        value = node("Add", scaled, weight(f"p{block}", rng.normal(0, 0.1, (1, 8, 1, 1))))
        block += 1
    borders = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 8, 8]) for name in ("x", value)]
    graph = helper.make_graph(made, f"growth{nodes}", borders[:1], borders[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", nargs="+", type=int, default=[1000, 10_000, 100_000])
    parser.add_argument("--backend", default="cpu-bf16")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    times: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for nodes in options.nodes:
            path = Path(folder, f"growth_{nodes}.onnx")
            onnx.save(build(nodes), str(path))
            runs = [alone(ours, path, options.backend) for _ in range(options.repeat)]
            times[nodes] = median(runs) | median([run["by pass"] for run in runs])
    last, before = options.nodes[-1], options.nodes[-2] if len(options.nodes) > 1 else options.nodes[-1]
    rows = [
        {"step": step, **{f"{nodes} nodes": times[nodes][step] for nodes in options.nodes},
         f"{last}/{before}": times[last][step] / max(times[before][step], 1e-9)}
        for step in times[last]
    ]  # fmt: skip
    table(rows)


if __name__ == "__main__":
    main()
