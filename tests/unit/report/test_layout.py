"""Layered drawings: nodes below what they read, no two at one place, about as wide as high."""

import random

import pytest
from dovetail_report.layout.layered import layered

CHAIN = [(i, i + 1) for i in range(4)]
DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


@pytest.mark.parametrize("nodes, edges, x, y", [
    (0, [], [], []),
    (1, [], [0], [0]),
    (5, CHAIN, [0, 0, 0, 0, 0], [0, 1, 2, 3, 4]),
    (4, DIAMOND, [0.5, 0, 1, 0.5], [0, 1, 1, 2]),
    (3, [(0, 1), (2, 1)], [0, 0.5, 1], [0, 1, 0]),
], ids=["empty", "one", "chain", "diamond", "two sources"])  # fmt: skip
def test_small_graphs(nodes, edges, x, y):
    drawing = layered(nodes, edges)
    assert (drawing.x, drawing.y) == (x, y)


def test_a_weight_is_next_to_its_reader():
    weight = 5
    drawing = layered(6, [*CHAIN, (weight, 4)])
    assert drawing.y[weight] == drawing.y[4] - 1


def test_edges_that_close_a_circle_do_not_count():
    drawing = layered(3, [(0, 1), (1, 2), (2, 0), (1, 1)])
    assert sorted(drawing.y) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(5))
def test_no_two_nodes_are_at_one_place(seed):
    rng = random.Random(seed)
    edges = [(rng.randrange(i), i) for i in range(1, 400) for _ in range(rng.randrange(1, 3))]
    drawing = layered(400, edges)
    places = sorted(zip(drawing.y, drawing.x))
    assert all(b[0] > a[0] or b[1] - a[1] > 0.98 for a, b in zip(places, places[1:]))
    assert min(drawing.x) == 0 and max(drawing.x) == drawing.width


@pytest.mark.parametrize("edges", [[(i, i + 1) for i in range(9_999)], [(0, i) for i in range(1, 10_000)]],
                         ids=["long", "wide"])  # fmt: skip
def test_long_chains_and_wide_rows_are_folded(edges):
    drawing = layered(10_000, edges)
    assert max(drawing.width, drawing.height) < 700
