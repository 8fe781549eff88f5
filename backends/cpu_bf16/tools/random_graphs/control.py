"""Branches, loops, scans and sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import helper

from .graph import BOOL, FLOAT, INT64, Graph, Impossible, Value

__all__ = ["operators"]

Grow = Callable[[Graph, int], None]


def operators(grow: Grow) -> dict[str, Callable[[Graph], None]]:
    """Return functions that add control flow, by name; `grow` adds operators without bodies to a body."""
    return {
        "If": lambda g: _branch(g, grow),
        "Loop": lambda g: loop(g, grow),
        "Scan": lambda g: scan(g, grow),
        "SequenceAt": _sequence,
        "ConcatFromSequence": _split_and_concat,
    }


def inner(g: Graph, inputs: Sequence[Value], captures: bool = True) -> Graph:
    """A body: its own nodes and constants, names that are unique in the whole model."""
    seen = [value for value in g.values if value.rank <= 4] if captures else []
    body = Graph(g.rng, g.opset, values=[*seen, *inputs], counter=g.counter, rare=g.rare)
    body.constants = g.constants
    return body


def _info(value: Value):
    return helper.make_tensor_value_info(value.name, value.dtype, value.shape)


def _proto(body: Graph, name: str, inputs: Sequence[Value], outputs: Sequence[Value]):
    return helper.make_graph(body.nodes, name, [*map(_info, inputs)], [*map(_info, outputs)], body.initializers)


def _shaped(body: Graph, like: Value) -> Value:
    """A value computed in `body` with the shape of `like`, no larger than one."""
    made = [node.output[0] for node in body.nodes]
    fits = [v for v in body.values if v.name in made and v.dtype == FLOAT and v.shape == like.shape]
    if not fits:
        fits = [body.node(body.choose(["Neg", "Relu", "Sin"]), [like], bound=like.bound)]
    return body.node(body.choose(["Tanh", "Sigmoid", "Softsign"]), [body.choose(fits)], bound=1.0)


def _branch(g: Graph, grow: Grow) -> None:
    flag = g.pick(BOOL, lambda value: value.rank == 0)
    like = g.floats(lambda value: value.rank >= 1)
    bodies = []
    for name in ("then", "else"):
        body = inner(g, [])
        grow(body, g.integer(0, 3))
        bodies.append(_proto(body, name, [], [_shaped(body, like)]))
    made = Value(g.fresh("v"), FLOAT, like.shape, 1.0)
    node = helper.make_node("If", [flag.name], [made.name], made.name, then_branch=bodies[0], else_branch=bodies[1])
    g.opaque(node, [made])


def loop(g: Graph, grow: Grow) -> None:
    """A counted loop with one state, sometimes with scan outputs or a constant trip count."""
    state = g.floats(lambda value: 1 <= value.rank <= 3)
    step, go, carried = (
        Value(g.fresh("it"), INT64, ()),
        Value(g.fresh("go"), BOOL, ()),
        Value(g.fresh("st"), FLOAT, state.shape, max(state.bound, 1.0)),
    )
    body = inner(g, [carried])
    on = body.node("Identity", [go])
    grow(body, g.integer(0, 3))
    if g.chance(0.4):
        number = body.node("Cast", [step], to=FLOAT, bound=3.0)
        body.node("Add", [carried, body.node("Mul", [number, body.constant(np.float32(0.1))])])
    result = _shaped(body, carried)
    turns = g.integer(1, 3)
    scans = []
    if g.chance(0.6):
        scans.append(body.node("Neg", [result], bound=1.0))
    if g.chance(0.2):
        scans.append(body.node("Greater", [result, body.constant(np.float32(0.1))]))
    if g.chance(0.2):
        scans.append(body.node("ReduceMax", [result], keepdims=0))
    graph = _proto(body, g.fresh("loop"), [step, go, carried], [on, result, *scans])
    made = [Value(g.fresh("v"), FLOAT, state.shape, 1.0)]
    made += [Value(g.fresh("v"), scan.dtype, (turns, *scan.shape), scan.bound) for scan in scans]
    count = g.constant(np.int64(turns)).name
    condition = g.constant(np.bool_(True)).name if g.chance(0.5) else ""
    node = helper.make_node("Loop", [count, condition, state.name], [v.name for v in made], made[0].name, body=graph)
    g.opaque(node, made)


def scan(g: Graph, grow: Grow) -> None:
    """A Scan over the first axis of one value, with a state and one output per iteration."""
    data = g.floats(lambda value: value.rank >= 2)
    row = data.shape[1:]
    state, element = Value(g.fresh("st"), FLOAT, row, 2.0), Value(g.fresh("el"), FLOAT, row, data.bound)
    body = inner(g, [state, element], captures=g.chance(0.5))
    body.node("Add", [state, element], bound=data.bound + 2)
    grow(body, g.integer(0, 2))
    result = _shaped(body, state)
    out = body.node("Mul", [result, element], bound=data.bound)
    graph = _proto(body, g.fresh("scan"), [state, element], [result, out])
    initial = g.weight(*row, scale=0.5)
    made = [Value(g.fresh("v"), FLOAT, row, 1.0), Value(g.fresh("v"), FLOAT, data.shape, data.bound)]
    options = {"num_scan_inputs": 1}
    if g.chance(0.2):
        options["scan_input_directions"] = [1]
    names = [value.name for value in made]
    g.opaque(helper.make_node("Scan", [initial.name, data.name], names, made[0].name, body=graph, **options), made)


def _sequence(g: Graph) -> None:
    first = g.floats()
    second = g.floats()
    name, made = g.fresh("s"), None
    index = g.integer(0, 1)
    chosen = (first, second)[index]
    made = Value(g.fresh("v"), FLOAT, chosen.shape, chosen.bound)
    g.nodes.append(helper.make_node("SequenceConstruct", [first.name, second.name], [name], name))
    position = g.constant(np.int64(index)).name
    g.opaque(helper.make_node("SequenceAt", [name, position], [made.name], made.name), [made])


def _split_and_concat(g: Graph) -> None:
    value = g.floats(lambda candidate: candidate.rank >= 1 and candidate.shape[0] >= 2)
    if g.opset < 13:
        raise Impossible
    name = g.fresh("s")
    made = Value(g.fresh("v"), FLOAT, value.shape, value.bound)
    part = g.constant(np.int64(1)).name
    g.nodes.append(helper.make_node("SplitToSequence", [value.name, part], [name], name, axis=0))
    g.opaque(helper.make_node("ConcatFromSequence", [name], [made.name], made.name, axis=0), [made])
