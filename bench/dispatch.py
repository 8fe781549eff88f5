"""What the strategies for integers cost over the number of nodes: seconds of their own.

    python bench/dispatch.py [--nodes 6000 50000 100000] [--repeat 3] [--roles]

The net is a residual chain of convolutions in blocks of ten nodes: Conv, Relu, Conv, Add, Relu, a Shape, a Slice and a
Concat that size a Reshape, and in one block of four a Softmax, which the backend takes in floats only. `graph` builds
what searches walk on, which all strategies of a request share. `verdicts` asks the backend's file about every node, for
all strategies. `select` finds the nodes; `claim` does so again, claims them and says why nodes stay away; `fix-up` asks
once about the claims. With `--roles`, the backend is `bpu-int8`, whose strategy has no `select`. Garbage is collected
as the program `dovetail` does it.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from dovetail.passes import BackendChoice, Context, Pipeline, Request
from dovetail.planning import Claims
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_proto
from dovetail_placement.claiming import Claiming
from dovetail_placement.edge_kinds import EdgeKinds
from dovetail_placement.legality import Judges
from dovetail_placement.pins import Pins
from dovetail_placement.search import SearchGraph, ShapeArithmetic
from dovetail_placement.strategies.integers import IntegerCandidates
from measure import table
from onnx import TensorProto, helper, numpy_helper

STRATEGIES = ("conservative", "conv-to-conv", "aggressive", "pointwise", "all-in", "perseus")
INTEGERS = [("bench-int8", strategy) for strategy in STRATEGIES]
ROLES = [(f"bpu-int8:march={march}", None) for march in ("bernoulli2", "bayes", "nash")]
FILE = """
backend: bench-int8
device: npu
opset: 13..26
dynamic: accept
precision: {low: int8, high: float32}
types: {q8: {dtype: int8, scheme: symmetric}, f32: float32}
ops:
  Conv, Relu, Add, Reshape, Slice, Concat: {role: active, types: q8}
  Softmax: {types: f32}
place: {strategy: conservative}
emit: {engines: [onnxruntime-cpu]}
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[6000, 50_000, 100_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--roles", action="store_true", help="bpu-int8 by its own strategy, one row per march")
    options = parser.parse_args()
    gc.set_threshold(2_000_000, 10, 10)
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "bench_dispatch_backend"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "int8.backend.yaml").write_text(FILE)
        sys.path.insert(0, folder)
        plugins = load_plugins()
        plugins.registry.backend("bench-int8", f"{package.name}:int8.backend.yaml")
        rows = []
        for count in options.nodes:
            rows += measured(chain(count), options.repeat, plugins, ROLES if options.roles else INTEGERS)
    table(rows)


def measured(proto: onnx.ModelProto, repeat: int, plugins, requests) -> list[dict]:
    """One row per backend and strategy."""
    model = open_proto(proto, "chain")
    Pipeline.parse("edge-kinds", plugins.registry).run(model, Context(plugins=plugins))
    rows = []
    for asked, strategy in requests:
        times: dict[str, list[float]] = {"graph": [], "verdicts": [], "select": [], "claim": [], "fix-up": []}
        claimed = 0
        for _ in range(repeat):
            gc.collect()
            request = Request(backends=(BackendChoice.parse(asked),), strategy=strategy)
            context = Context(request, plugins=plugins)
            name = request.backends[0].name
            context.model = model
            context.analysis(EdgeKinds, model)
            with timed(times["graph"]):
                context.analysis(SearchGraph, model)
                context.analysis(ShapeArithmetic, model)
            claiming = Claiming(model, context, context.analysis(Judges, model), Pins(model, context), {name: {}})
            (backend,) = context.backends
            view, (made, _) = claiming.view_of(backend), claiming.strategy_of(backend)
            with timed(times["verdicts"]):
                for node in view.nodes():
                    view.verdict(node)
            if hasattr(made, "select"):
                with timed(times["select"]):
                    made.select(IntegerCandidates(view))
            with timed(times["claim"]):
                claims = made.claim(view, backend)
            for claim in claims.claims:
                claiming.enter(backend.name, claim)
            with timed(times["fix-up"]):
                made.fix_up(view, Claims(claims.claims))
            claimed = len(claims.claims)
        row = {"nodes": len(proto.graph.node), "strategy": strategy or asked, "claimed": claimed}
        rows.append(row | {f"{key} s": statistics.median(seconds) for key, seconds in times.items() if seconds})
    return rows


class timed:  # noqa: N801 - reads as a word
    """Append the processor seconds of a block to a list."""

    def __init__(self, seconds: list[float]):
        self._seconds = seconds

    def __enter__(self) -> None:
        self._start = time.process_time()

    def __exit__(self, *_) -> None:
        self._seconds.append(time.process_time() - self._start)


def chain(count: int) -> onnx.ModelProto:
    """A residual chain of about `count` nodes."""
    shape, nodes, infos = [1, 4, 8, 8], [], []
    weights = {
        "w": np.ones((4, 4, 1, 1), np.float32), "zero": np.array([0]), "two": np.array([2]), "rest": np.array([8, 8]),
    }  # fmt: skip

    def add(kind, inputs, output, dims=shape, dtype=TensorProto.FLOAT, **attributes):
        nodes.append(helper.make_node(kind, inputs, [output], name=f"{kind}_{output}", **attributes))
        infos.append(helper.make_tensor_value_info(output, dtype, dims))

    before, block = "x", 0
    while len(nodes) < count:
        n = f"{block}"
        add("Conv", [before, "w"], f"a{n}")
        add("Relu", [f"a{n}"], f"b{n}")
        add("Conv", [f"b{n}", "w"], f"c{n}")
        add("Add", [f"c{n}", before], f"d{n}")
        add("Relu", [f"d{n}"], f"e{n}")
        add("Shape", [f"e{n}"], f"s{n}", [4], TensorProto.INT64)
        add("Slice", [f"s{n}", "zero", "two"], f"t{n}", [2], TensorProto.INT64)
        add("Concat", [f"t{n}", "rest"], f"u{n}", [4], TensorProto.INT64, axis=0)
        add("Reshape", [f"e{n}", f"u{n}"], f"v{n}")
        if block % 4 == 3:
            add("Softmax", [f"v{n}"], f"f{n}")
        else:
            add("Relu", [f"v{n}"], f"f{n}")
        before, block = f"f{n}", block + 1
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [infos.pop()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
        value_info=infos,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


if __name__ == "__main__":
    main()
