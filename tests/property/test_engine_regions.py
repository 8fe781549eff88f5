"""Regions for engines on random graphs: correct, few, and as cheap as any."""

import os
import random

import pytest
from dovetail_placement.engine_regions.local_search import cut, runs
from dovetail_placement.engine_regions.problem import (
    OUTSIDE,
    Problem,
    Traffic,
    earliest,
    gaps_from_below,
    price,
)

from .region_problems import cheapest, random_problem, run_after_another

SEEDS = range(300 if os.environ.get("DOVETAIL_SLOW") else 60)
LAUNCHES = (0, 30, 1000)


def count(region):
    return len(set(region) - {OUTSIDE})


def random_order(problem: Problem, seed: int) -> list[int]:
    """A random order in which the nodes can run."""
    draw, waiting, order = random.Random(seed), [len(set(before)) for before in problem.before], []
    ready = [node for node, left in enumerate(waiting) if not left]
    while ready:
        order.append(node := ready.pop(draw.randrange(len(ready))))
        for user in set(problem.behind[node]):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return order


def order_of(problem: Problem, region: list[int]) -> list[int]:
    """The order in which regions run: each at once, and behind it the nodes outside that waited for it."""
    gaps = gaps_from_below(problem, region)
    return sorted(range(len(region)), key=lambda node: (gaps[node], not problem.legal[node], node))


def reordered(problem: Problem, order: list[int]) -> Problem:
    """The same problem with its nodes in another order."""
    at = {node: place for place, node in enumerate(order)} | {OUTSIDE: OUTSIDE}
    values = [
        Traffic(v.weight, at[v.producer], tuple(at[reader] for reader in v.readers), v.leaves) for v in problem.values
    ]
    fused_groups = [tuple(at[node] for node in fused_group) for fused_group in problem.fused_groups]
    return Problem([problem.legal[node] for node in order], values, fused_groups, problem.launch, problem.fused_group)


@pytest.mark.parametrize("size", [8, 40, 200])
def test_regions_hold_the_legal_nodes_run_after_another_and_are_few(size):
    for seed in SEEDS:
        problem = random_problem(seed, size, launch=100)
        region = cut(problem)
        assert [home != OUTSIDE for home in region] == list(problem.legal)
        assert run_after_another(problem, region)
        assert count(region) <= count(runs(problem))
        assert sorted(set(region) - {OUTSIDE}) == list(range(count(region)))


@pytest.mark.slow
def test_the_price_is_the_lowest_in_nearly_all_small_graphs():
    problems = [random_problem(seed, 6 + seed % 7, launch) for seed in SEEDS for launch in LAUNCHES]
    prices = [(price(problem, cut(problem)), cheapest(problem)) for problem in problems]
    assert all(found >= best for found, best in prices)
    assert sum(found == best for found, best in prices) >= 0.95 * len(prices)


def test_moving_nodes_matters_on_these_graphs():
    """The share above means something: most graphs leave a choice, and no choice is the cheapest one often enough."""
    missed = 0
    for seed in SEEDS:
        problem = random_problem(seed, 6 + seed % 7, launch=30)
        first = [level if legal else OUTSIDE for level, legal in zip(earliest(problem), problem.legal, strict=True)]
        missed += price(problem, first) > cheapest(problem)
    assert missed > 0.05 * len(SEEDS)


@pytest.mark.parametrize("kind", ["random", "that of the regions"])
def test_the_order_of_the_nodes_makes_no_difference(kind):
    """In the order of the regions, a compiled model has its nodes: compiled again, the same nodes share a region."""
    for seed in SEEDS:
        problem = random_problem(seed, 60, launch=100)
        region = cut(problem)
        order = random_order(problem, seed) if kind == "random" else order_of(problem, region)
        assert cut(reordered(problem, order)) == [region[node] for node in order]


def test_a_side_chain_in_between_does_not_cut():
    """Four nodes in a row, and a side chain outside that the order has between them: one region instead of three."""
    legal = [True, False, True, False, True]
    values = [Traffic(8, 0, (1, 2)), Traffic(8, 1, (3,)), Traffic(8, 2, (4,)), Traffic(8, 3, (), True)]
    problem = Problem(legal, values, launch=100)
    assert count(runs(problem)) == 3
    assert cut(problem) == [0, OUTSIDE, 0, OUTSIDE, 0]


def test_an_atom_stays_whole_if_that_costs_less_than_it_saves():
    """Node 3 may be in either region; the value that it reads is smaller than the one that it gives."""
    legal = [True, False, True, True, True]
    values = [Traffic(1, 0, (1, 3)), Traffic(1, 1, (2,)), Traffic(10, 2, (4,)), Traffic(5, 3, (4,))]
    assert cut(Problem(legal, values, launch=100)) == [0, OUTSIDE, 1, 1, 1]
    assert cut(Problem(legal, values, [(0, 3)], launch=100, fused_group=50)) == [0, OUTSIDE, 1, 0, 1]
