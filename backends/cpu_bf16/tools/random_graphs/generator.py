"""Random models: a seed gives a model and inputs for it."""

from __future__ import annotations

import copy

import numpy as np
import onnx
from onnx import helper

from . import attributes, control, elementwise, movement, neural
from .graph import BOOL, FLOAT, INT64, Graph, Impossible, Value

__all__ = ["OPERATORS", "random_model"]

PLAIN = {**elementwise.OPERATORS, **neural.OPERATORS, **movement.OPERATORS}
OPSETS = (13, 15, 17, 18, 20, 21, 22, 23, 24)
NEW_OPSETS = (21, 22, 23, 24)
FAMILIES = (
    (elementwise.OPERATORS, 0.38),
    (neural.OPERATORS, 0.30),
    (movement.OPERATORS, 0.32),
)
SHAPES = ((2, 4, 5, 6), (2, 3, 6), (3, 4, 7, 8), (2, 4, 4), (1, 8, 6, 6), (2, 2, 6, 4), (2, 6), (1, 2, 2, 3))
LARGEST_SIZE = 3000  # elements of a value that may be read further
TRIES = 200


def _grow(g: Graph, count: int) -> None:
    """Add operators without bodies until there are `count` more nodes, or nothing fits."""
    target, tries = len(g.nodes) + count, 0
    while len(g.nodes) < target and tries < TRIES:
        tries += 1
        names = list(FAMILIES[int(g.rng.choice(len(FAMILIES), p=[share for _, share in FAMILIES]))][0])
        _try(g, _maker(g, g.choose(names)))


CONTROL = control.operators(_grow)
OPERATORS = {**PLAIN, **CONTROL}
"""Functions that add an operator to a graph, by operator name, some with a qualifier."""


def _maker(g: Graph, name: str):
    """Return the function that adds operator `name`, with rare attributes mostly where they are wanted."""
    if g.rare and name in attributes.OPERATORS and g.chance(0.8):
        return attributes.OPERATORS[name]
    return OPERATORS[name]


def _try(g: Graph, make) -> bool:
    """Add an operator; if that is impossible, leave the graph unchanged."""
    before = copy.copy((list(g.values), list(g.ends), list(g.nodes), list(g.initializers)))
    try:
        make(g)
        small = all(int(np.prod(value.shape)) <= LARGEST_SIZE for value in g.values[len(before[0]) :])
        if small and all(0 not in value.shape for value in g.values):
            return True
    except (Impossible, onnx.shape_inference.InferenceError, ValueError, IndexError):
        pass
    g.values, g.ends, g.nodes, g.initializers = before
    return False


def random_model(
    seed: int, only: tuple[str, ...] = (), rare: bool = False
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A valid model of 3 to 25 nodes and inputs for it; equal seeds give equal models.

    Args:
        seed: Any whole number.
        only: Names of `OPERATORS` to use, one after the other; without them everything is random.
        rare: Choose any attributes and extents, not only common ones.
    """
    rng = np.random.default_rng(seed)
    opsets = NEW_OPSETS if only else OPSETS
    g = Graph(rng, opsets[int(rng.integers(len(opsets)))], rare=rare)
    inputs = _inputs(g)
    if only:
        _chain(g, only)
    else:
        target, tries = g.integer(3, 25), 0
        while len(g.nodes) < target and tries < TRIES:
            tries += 1
            if g.chance(0.05):
                _try(g, CONTROL[g.choose(list(CONTROL))])
            else:
                _grow(g, 1)
    return _finished(g, inputs)


def _chain(g: Graph, names: tuple[str, ...]) -> None:
    """Add the operators one after the other, each reading what the one before gave where that fits.

    Raises:
        Impossible: An operator fits nowhere.
    """
    newest = g.values
    for name in names:
        before = list(g.values)
        known = {value.name for value in before}
        made = False
        for start in (newest, before):
            g.values = list(start)
            made = any(_try(g, _maker(g, name)) for _ in range(20))
            if made:
                break
        if not made:
            raise Impossible(name)
        newest = [value for value in g.values if value.name not in known]
        g.values = before + newest


def _inputs(g: Graph) -> list[Value]:
    shape = g.choose(
        [(2, 4, 5, 6), (2, 3, 6), (3, 4, 7, 8), (2, 4, 4), (1, 8, 6, 6), (2, 2, 6, 4), (2, 6), (1, 2, 2, 3)]
    )
    if g.rare and g.chance(0.7):
        shape = attributes.any_shape(g)
    inputs = [Value("x0", FLOAT, shape, 2.0), Value("x1", FLOAT, shape, 2.0)]
    if g.chance(0.5):
        inputs.append(Value("x2", FLOAT, (shape[0], shape[-1]), 2.0))
    if g.chance(0.3):
        inputs.append(Value("v", FLOAT, (), 2.0))
    inputs += [Value("ids", INT64, (shape[0], 3), 5.0), Value("flag", BOOL, (), 1.0)]
    g.values += inputs
    return inputs


def _finished(g: Graph, inputs: list[Value]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model whose outputs are the values that nothing reads, and feeds for it."""
    batch = g.chance(0.4)
    read = set(_read(g.nodes))
    made = {name for node in g.nodes for name in node.output if name}
    outputs = [value for value in (*g.values, *g.ends) if value.name in made and value.name not in read]
    outputs = [value for value in outputs if value.dtype]
    chosen = [value for value in g.values if value.name in made and value.name in read and g.chance(0.08)]
    used = [value for value in inputs if value.name in read]
    feeds = {value.name: _feed(g, value) for value in used}
    described = []
    for value in (*outputs, *chosen):
        extents = [f"{value.name}_{axis}" for axis in range(len(value.shape))]
        known = value.shape != (None,)
        described.append(helper.make_tensor_value_info(value.name, value.dtype, extents if known else None))
    given = []
    for value in used:
        extents = [f"N{value.shape[0]}" if batch and i == 0 else extent for i, extent in enumerate(value.shape)]
        given.append(helper.make_tensor_value_info(value.name, value.dtype, extents))
    constants = [tensor for tensor in g.initializers if tensor.name in read]
    graph = helper.make_graph(g.nodes, "random", given, described, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=10)
    return model, feeds


def _read(nodes) -> list[str]:
    found = []
    for node in nodes:
        found += [name for name in node.input if name]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _read(attribute.g.node)
                found += [value.name for value in attribute.g.output]
    return found


def _feed(g: Graph, value: Value) -> np.ndarray:
    if value.dtype == FLOAT:
        return g.rng.uniform(-value.bound, value.bound, value.shape).astype(np.float32)
    if value.dtype == BOOL:
        return np.asarray(g.chance(0.5))
    return g.rng.integers(0, 5, value.shape).astype(np.int64)
