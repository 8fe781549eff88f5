"""Steps of a random graph with bodies: If and Loop."""

import numpy as np

from .grown import Graph, Impossible
from .grown_computing import binary, clip, matmul, swish, unary, where
from .grown_values import axes_form, floats

INSIDE = (unary, binary, clip, matmul, where, swish)


def inner(g, count):
    """A body with a few nodes that ends in a float of the shape of one that it captures."""
    body = Graph(g.rng, g.opset, g.float, outer=g)
    for _ in range(count):
        try:
            nested = branch if g.outer is None and g.rng.random() < 0.2 else None
            (nested or INSIDE[int(g.rng.integers(len(INSIDE)))])(body)
        except Impossible:
            continue
    return body


def branch(g):
    value = floats(g)
    ends = []
    for _ in range(2):
        body = inner(g, int(g.rng.integers(0, 3)))
        own = body.add(str(g.rng.choice(["Relu", "Tanh", "Neg"])), value)
        alike = [name for name in body.made if body.arrays[name].shape == body.arrays[own].shape]
        end = body.add("Mul", own, str(g.rng.choice([n for n in alike if body.arrays[n].dtype == g.float])))
        ends.append((body, end))
    total = axes_form(g, "ReduceSum", value, range(g.arrays[value].ndim), 13, keepdims=0, keep=False)
    condition = g.add("Greater", total, g.number(float(g.rng.choice([-100, 100, 0]))), keep=False)
    (one, end), (other, back) = ends
    g.add("If", condition, then_branch=one.body([end]), else_branch=other.body([back]))


def loop(g):
    value = floats(g)
    if g.rng.random() < 0.5:
        trips = g.weight(np.int64(2), shared=True)
    else:
        trips = g.add("Size", g.whole(1, 1, 1), keep=False)
    body = Graph(g.rng, g.opset, g.float, outer=g)
    names = [body.fresh(stem) for stem in ("i", "go", "state")]
    body.arrays.update(zip(names, [np.int64(0), np.bool_(True), g.arrays[value]]))
    body.arrays.update({name: np.asarray(body.arrays[name]) for name in names})
    on = body.add("Identity", names[1], keep=False)
    if g.rng.random() < 0.5:
        step = body.add("Tanh", body.add("Add", names[2], body.number(0.25)))
    else:
        step = body.add("Mul", body.add("Sigmoid", names[2]), value)
    scans = [body.add("Neg", step)] if g.rng.random() < 0.4 else []
    made = body.body([on, step, *scans], names)
    g.add("Loop", trips, g.weight(np.asarray(True), shared=True), value, outputs=1 + len(scans), body=made)
