"""`min-cut` with three formats, against the exact minimum of random problems."""

import os
from statistics import median

import pytest
from dovetail_precision.costs import cost_of
from dovetail_precision.def_use import def_use_chains
from dovetail_precision.solvers.fixpoint import solve_fixpoint
from dovetail_precision.solvers.forward import solve_forward
from dovetail_precision.solvers.min_cut import solve_min_cut
from hypothesis import given
from hypothesis import strategies as st

from .three_formats import least, random_problem, solve_all_high

SEEDS = range(200 if os.environ.get("DOVETAIL_SLOW") == "1" else 10)
STARTS = (solve_forward, solve_fixpoint, solve_all_high)


@pytest.fixture(scope="module")
def costs():
    """For each graph of 200 nodes: the cost of `min-cut`, the best of its starts, and the minimum."""
    found = []
    for seed in SEEDS:
        problem = random_problem(seed)
        starts = []
        for start in STARTS:
            start(problem)
            starts.append(cost_of(problem))
        solve_min_cut(problem)
        found.append((cost_of(problem), min(starts), least(problem)))
    return found


@pytest.mark.slow
def test_it_never_ends_above_the_best_start(costs):
    assert all(ours <= best for ours, best, _ in costs)


@pytest.mark.slow
def test_it_usually_finds_the_minimum(costs):
    gaps = [ours / exact - 1 for ours, _, exact in costs]
    assert min(gaps) >= 0, "the reference is no minimum"
    assert median(gaps) == 0
    assert max(gaps) <= 0.05


@pytest.mark.slow
def test_the_reference_is_what_the_choices_cost(costs):
    """Otherwise a wrong reference could agree with a wrong solver: a start costs no less than the minimum."""
    assert all(exact <= best for _, best, exact in costs)
    assert any(exact < best for _, best, exact in costs)


@given(seed=st.integers(1000, 10**6), nodes=st.integers(1, 30))
def test_small_problems(seed, nodes):
    problem = random_problem(seed, nodes)
    starts = []
    for start in STARTS:
        start(problem)
        starts.append(cost_of(problem))
    solve_min_cut(problem)
    assert all(variable.chosen in variable.choices for variable in problem.variables)
    assert least(problem) <= cost_of(problem) <= min(starts)


def test_the_problems_are_not_easy():
    """Some values are computed in one format and read in two others, which no cut of two formats finds."""
    found = 0
    for seed in SEEDS:
        problem = random_problem(seed, 40)
        solve_min_cut(problem)
        chains = [chain for chain in def_use_chains(problem) if chain.producer is not None]
        found += sum(len(chain.wanted | {chain.held}) == 3 for chain in chains)
    assert found
