"""Seeded random models as exporters and quantizers write them: nets of images, sequences and numbers.

They have several outputs, constants that many nodes share, constants of rank 0, inputs with open extents, bodies that
capture values, sources in float16, and operators of integers. A model is made from a seed alone.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from .grown import Graph, Impossible, run
from .grown_steps import STEPS, drawn


@dataclass(frozen=True)
class Grown:
    """A model with inputs for it.

    Attributes:
        seed: What it was made from.
        model: The model.
        feeds: An array for every input.
        kinds: What is in it: `float16`, `open`, `bodies`.
    """

    seed: int
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    kinds: frozenset[str]


def grown(seed):
    """The model of this seed."""
    for attempt in range(10):
        made = _attempt(seed, attempt)
        try:
            run(made.model, made.feeds)
        except Exception:  # nodes that ran one by one do not run as a whole: the next attempt
            continue
        return made
    raise AssertionError(f"seed {seed} gives no model that ONNX Runtime runs")


def _attempt(seed, attempt):
    rng = np.random.default_rng([seed, 23, attempt] if attempt else [seed, 23])
    half = rng.random() < 0.12
    graph = Graph(rng, int(rng.choice([13, 17, 18, 21])), np.float16 if half else np.float32)
    open_extents = inputs_of(graph)
    wanted = int(rng.integers(3, 22))
    for _ in range(4 * wanted):
        if len(graph.nodes) >= wanted:
            break
        step_of(graph, STEPS[drawn(rng)])
    return finished(seed, graph, open_extents, {"float16"} if half else set())


def finished(seed, graph, open_extents, kinds):
    """The model of a graph: its outputs are what nothing reads, and some values in between."""
    rng = graph.rng
    if not graph.nodes:
        graph.add("Relu", graph.inputs[0]) if graph.arrays[graph.inputs[0]].dtype.kind == "f" else None
    read = {name for node in graph.nodes for name in node.input}
    made = [name for node in graph.nodes for name in node.output if graph.arrays[name].dtype != bool]
    ends = [name for name in made if name not in read] or made[-1:]
    extra = [name for name in made if name in read and rng.random() < 0.08]
    outputs = list(dict.fromkeys([*ends, *extra]))
    model = graph.model(outputs, open_extents)
    kinds = kinds | ({"open"} if open_extents else set())
    kinds |= {"bodies"} if any(a.HasField("g") for node in graph.nodes for a in node.attribute) else set()
    return Grown(seed, model, {name: graph.arrays[name] for name in graph.inputs}, frozenset(kinds))


def step_of(graph, step):
    """Take a step, or none if it is impossible."""
    kept = len(graph.nodes), len(graph.made), dict(graph.weights)
    try:
        step(graph)
    except Impossible:
        del graph.nodes[kept[0] :], graph.made[kept[1] :]
        graph.weights = kept[2]


def inputs_of(graph):
    """Add one or two inputs; returns the names of open extents by input and axis."""
    rng = graph.rng
    kind, batch = rng.choice(["image", "image", "image", "sequence", "numbers", "ids"]), int(rng.choice([1, 1, 2]))
    extents = {"image": (batch, int(rng.integers(1, 7)), 6, int(rng.choice([6, 8]))), "sequence": (batch, 5, 6),
               "numbers": (batch + 1, 8), "ids": (batch, 5)}[kind]  # fmt: skip
    if kind == "ids":
        graph.input("ids", rng.integers(0, 9, extents).astype(rng.choice([np.int64, np.int32])))
        STEPS["embedding"](graph)
    else:
        graph.input("x", rng.standard_normal(extents).astype(graph.float))
    if rng.random() < 0.25:
        graph.input("side", rng.standard_normal(extents).astype(graph.float))
    if rng.random() > 0.25:
        return {}
    axes = [0] if kind == "numbers" or rng.random() < 0.5 else [0, len(extents) - 1 if kind == "image" else 1]
    return {(name, axis): f"d{axis}" for name in graph.inputs for axis in axes}


def widened(model):
    """A model in float16 as one in float32, which tells what rounding does to it."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    _widen(made.graph)
    return made


def _widen(graph):
    low, high = TensorProto.FLOAT16, TensorProto.FLOAT
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == low:
            value.type.tensor_type.elem_type = high
    for weight in graph.initializer:
        _widen_tensor(weight)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == low:
                attribute.i = high
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.HasField("g"):
                _widen(attribute.g)


def _widen_tensor(tensor):
    if tensor.data_type == TensorProto.FLOAT16:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
