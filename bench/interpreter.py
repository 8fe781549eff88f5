"""What running a plan region by region costs, and what independent regions gain.

    python bench/interpreter.py

The first table has chains of small regions that alternate between two engines: seconds of a run against calling the
sessions of the engines by hand in the same order, the least of alternating rounds, and the difference by region. The
second has plans with independent regions: a run that waits for each region against one that does not. The third has the
bytes that were live at most, recorded and by the sum over the values that the plan has at that time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import dovetail
import numpy as np
import onnx
from onnx import TensorProto, helper


def chain(regions: int, extent: int) -> tuple[onnx.ModelProto, list[str]]:
    """A chain of MatMul and Relu in pairs, and pins that put every other pair on the host."""
    nodes, weights, pins, value = [], [], [], "x"
    rng = np.random.default_rng(0)
    for index in range(regions):
        array = (rng.standard_normal((extent, extent)) / extent**0.5).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(array, f"w{index}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{index}"], [f"m{index}"], name=f"matmul_{index}"))
        nodes.append(helper.make_node("Relu", [f"m{index}"], [f"r{index}"], name=f"relu_{index}"))
        where = "cpu-bf16" if index % 2 else "host"
        pins += [f"matmul_{index}={where}", f"relu_{index}={where}"]
        value = f"r{index}"
    return _model(nodes, weights, extent, [value]), pins


def branches(count: int, depth: int, extent: int) -> tuple[onnx.ModelProto, list[str]]:
    """Chains from one input to an output each, on three backends in turn."""
    nodes, weights, pins, ends = [], [], [], []
    rng = np.random.default_rng(0)
    for branch in range(count):
        value, where = "x", ("host", "cpu-bf16", "gpu-fp16")[branch % 3]
        for index in range(depth):
            name = f"{branch}_{index}"
            array = (rng.standard_normal((extent, extent)) / extent**0.5).astype(np.float32)
            weights.append(onnx.numpy_helper.from_array(array, f"w{name}"))
            nodes.append(helper.make_node("MatMul", [value, f"w{name}"], [f"m{name}"], name=f"matmul_{name}"))
            nodes.append(helper.make_node("Tanh", [f"m{name}"], [f"t{name}"], name=f"tanh_{name}"))
            pins += [f"matmul_{name}={where}", f"tanh_{name}={where}"]
            value = f"t{name}"
        ends.append(value)
    return _model(nodes, weights, extent, ends), pins


def _model(nodes: list, weights: list, extent: int, outputs: list[str]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [extent, extent])
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [extent, extent]) for name in outputs]
    graph = helper.make_graph(nodes, "net", [x], made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(model: onnx.ModelProto, pins: list[str], **options: object) -> dovetail.CompiledModel:
    """The model as its pins say, in float32."""
    made = dovetail.compile(model, ["cpu-bf16", "gpu-fp16"], pins=pins, high=("*",), verify=False)
    made.options.update(options)
    return made


def by_hand(made: dovetail.CompiledModel) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """What somebody would write who has the sessions of the engines: no checks, no names of faults."""
    steps = [(runner.inputs, runner._session._session) for runner in made.executor().runners]

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = dict(inputs)
        for names, session in steps:
            values.update(session.run({name: values[name] for name in names}))
        return values

    return run


def least(functions: list[Callable[[], object]], rounds: int) -> list[float]:
    """The least seconds of each, in alternating rounds of ten calls: threads of engines spin for a while."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds // 10):
        for index, function in enumerate(functions):
            for _ in range(10):
                start = time.perf_counter()
                function()
                best[index] = min(best[index], time.perf_counter() - start)
    return best


def overhead(regions: int, extent: int, rounds: int) -> str:
    """A row of the first table."""
    made = compiled(*chain(regions, extent), threads=1)
    feeds, hand = {"x": np.ones((extent, extent), np.float32)}, by_hand(made)
    ours, floor = least([lambda: made.run(feeds), lambda: hand(feeds)], rounds)
    count = len(made.executor().runners)
    return f"| {count} | {extent} | {ours * 1e6:.0f} | {floor * 1e6:.0f} | {(ours - floor) / count * 1e6:.1f} |"


def gain(count: int, depth: int, extent: int, threads: int, rounds: int) -> str:
    """A row of the second table."""
    model, pins = branches(count, depth, extent)
    waiting, ready = (compiled(model, pins, threads=threads, parallel=how) for how in ("off", "auto"))
    feeds = {"x": np.ones((extent, extent), np.float32)}
    for made in (waiting, ready):
        for _ in range(400):  # it learns which way is faster
            made.run(feeds)
    one, both = least([lambda: waiting.run(feeds), lambda: ready.run(feeds)], rounds)
    row = (count, depth, extent, threads or "all", f"{one * 1e3:.3f}", f"{both * 1e3:.3f}", f"{both / one:.2f}")
    return f"| {' | '.join(map(str, row))} |"


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    print("| regions | extent | run us | by hand us | us by region |\n|---|---|---|---|---|")
    for regions, extent in ((4, 8), (4, 64), (16, 8)):
        print(overhead(regions, extent, options.rounds))
    print("\n| branches | depth | extent | threads | one after the other ms | as they are ready ms | ratio |")
    print("|---|---|---|---|---|---|---|")
    for count, depth, extent, threads in (
        (2, 4, 16, 1),
        (2, 4, 256, 1),
        (3, 4, 256, 1),
        (2, 4, 256, 0),
        (3, 8, 512, 0),
    ):
        print(gain(count, depth, extent, threads, max(50, options.rounds // 4)))
    print("\n| plan | peak recorded | sum of live values |\n|---|---|---|")
    for name, (model, pins) in (("chain", chain(8, 64)), ("branches", branches(3, 2, 64))):
        made = compiled(model, pins, parallel="off")
        with dovetail.trace(made) as timeline:
            made.run({"x": np.ones((64, 64), np.float32)})
        print(f"| {name} | {timeline.peak} | {live(made)} |")


def live(made: dovetail.CompiledModel) -> int:
    """The largest sum of the bytes of values that a run needs at one time, by the plan alone."""
    runners, outputs = made.executor().runners, {value.name for value in made.model.graph.outputs}
    sizes = {value.name: 4 * int(np.prod(value.shape.numpy())) for runner in runners
             for value in (*runner.region.inputs, *runner.region.outputs)}  # fmt: skip
    last = {name: index for index, runner in enumerate(runners) for name in (*runner.outputs, *runner.inputs)}
    there, most = {value.name for value in made.model.graph.inputs}, 0
    for index, runner in enumerate(runners):
        there |= set(runner.outputs)
        most = max(most, sum(sizes[name] for name in there))
        there -= {name for name in there if last[name] <= index and name not in outputs}
    return most


if __name__ == "__main__":
    main()
