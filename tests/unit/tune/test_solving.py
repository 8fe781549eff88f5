"""Choosing a candidate per segment: the front, and the certificate against trying everything."""

import math
import random

import numpy as np
import pytest
from dovetail_tune.certificate import optimum
from dovetail_tune.front import minimize, pareto_front
from dovetail_tune.pairwise_noise import MOST, ErrorsAtOutputs
from dovetail_tune.problem import PlanProblem

ENGINES, FORMATS = 2, 3


def random_problem(seed, units=7, chain=False, budget=True):
    """Units with a choice per engine and format; low formats are faster and noisier."""
    generator = random.Random(seed)
    choices = [(engine, format_) for engine in range(ENGINES) for format_ in range(FORMATS)]
    seconds = [[generator.uniform(1, 4) / (1 + format_) for _, format_ in choices] for _ in range(units)]
    noise = [
        [[format_ * generator.random() ** 4, format_ * generator.random()] for _, format_ in choices]
        for _ in range(units)
    ]
    pairs = [(i, i + 1) for i in range(units - 1)]
    if not chain:
        pairs += [(i, j) for i in range(units) for j in range(i + 2, units) if generator.random() < 0.15]

    def border(one, other):
        return -0.2 if one == other else 0.1 if one[0] == other[0] else generator.uniform(0.2, 1)

    borders = {pair: [[border(one, other) for other in choices] for one in choices] for pair in pairs}
    return PlanProblem(seconds, noise, borders, [generator.uniform(0.2, 4), math.inf] if budget else [math.inf] * 2)


def smaller(problem, units):
    """The first units alone, with the first three choices, so that all plans can be tried for a dozen units."""
    borders = {pair: [row[:3] for row in table[:3]] for pair, table in problem.borders.items() if max(pair) < units}
    seconds, noise = [row[:3] for row in problem.seconds[:units]], [row[:3] for row in problem.noise[:units]]
    return PlanProblem(seconds, noise, borders, problem.budget)


@pytest.mark.parametrize("seed", range(12))
def test_the_certificate_is_the_best_of_all_plans(seed):
    problem = random_problem(seed, units=5)
    feasible = [plan for plan in problem.plans() if problem.is_feasible(plan)]
    best = min(map(problem.time_of, feasible))
    proven = optimum(problem, 20.0)
    assert proven.is_exact and proven.bound == pytest.approx(best, rel=1e-6)
    assert problem.is_feasible(proven.plan) and problem.time_of(proven.plan) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("units", [9, 11])
def test_the_certificate_holds_for_larger_graphs(units):
    problem = smaller(random_problem(units, units=12), units)
    best = min(problem.time_of(plan) for plan in problem.plans() if problem.is_feasible(plan))
    assert optimum(problem, 20.0).bound == pytest.approx(best, rel=1e-6)


def test_where_no_plan_is_accurate_enough_that_is_proven():
    problem = PlanProblem([[1.0, 2.0]], [[[3.0], [2.0]]], {}, [1.0])
    assert optimum(problem, 20.0).plan is None and optimum(problem, 20.0).bound == math.inf


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("seed", range(6))
def test_along_a_chain_the_front_holds_the_fastest_plan_at_every_price(seed):
    problem = random_problem(seed, units=5, chain=True)
    for prices in ([0.0, 0.0], [0.3, 0.0], [0.1, 2.0], [1e6, 1e6]):

        def total(plan, prices=prices):
            return problem.time_of(plan) + sum(p * n for p, n in zip(prices, problem.noise_of(plan)))

        assert total(minimize(problem, prices)) == pytest.approx(min(map(total, problem.plans())))


@pytest.mark.parametrize("seed", range(6))
def test_in_other_graphs_expansion_is_never_worse_than_one_choice_for_all_and_close_to_the_best(seed):
    problem = random_problem(seed, units=5)
    found = problem.time_of(minimize(problem, [0.0, 0.0]))
    assert found <= min(problem.time_of([choice] * 5) for choice in range(ENGINES * FORMATS)) + 1e-9
    assert found <= min(map(problem.time_of, problem.plans())) + 0.6


def test_no_plan_of_the_front_is_faster_and_less_noisy_than_another():
    problem = random_problem(3, chain=True)
    front = pareto_front(problem)
    assert len(front) > 3
    times = list(map(problem.time_of, front))
    assert times == sorted(times)
    noises = [problem.noise_of(plan)[0] / problem.budget[0] for plan in front]
    worst = [max(noise, problem.noise_of(plan)[1]) for noise, plan in zip(noises, front)]
    assert worst == sorted(worst, reverse=True)


def test_with_no_price_for_noise_the_front_begins_with_the_fastest_plan():
    problem = random_problem(5, units=5, chain=True)
    assert problem.time_of(pareto_front(problem)[0]) == pytest.approx(min(map(problem.time_of, problem.plans())))


def errors_of(*vectors):
    """Errors of one segment each, with one candidate beside the exact one, on one batch of one output."""
    errors = ErrorsAtOutputs()
    for unit, vector in enumerate(vectors):
        error = np.array(vector, float)
        errors.add((unit, 1), [[error]], [float(error @ error)])
    return errors.pairs()


@pytest.mark.parametrize(
    ("second", "noise"),
    [([0.1, 0.2], 4 * 0.05), ([-0.1, -0.2], 0.0), ([0.2, -0.1], 2 * 0.05)],
    ids=["errors add up", "errors cancel", "errors are independent"],
)
def test_the_noise_of_a_pair_says_whether_errors_add_or_cancel(second, noise):
    pairs = errors_of([0.1, 0.2], second)
    problem = PlanProblem([[2.0, 1.0]] * 2, [[[0.0], [0.05]]] * 2, {}, [math.inf], pairs)
    assert problem.noise_of((1, 1)) == pytest.approx([noise], abs=1e-7)
    assert problem.noise_of((1, 0)) == [0.05]


def test_a_plan_whose_errors_cancel_is_found_where_their_sum_would_miss_the_goal():
    pairs = errors_of([0.1, 0.2], [-0.1, -0.2], [0.2, 0.1])
    problem = PlanProblem([[2.0, 1.0]] * 3, [[[0.0], [0.05]]] * 3, {}, [0.06], pairs)
    assert (optimum(problem, 20.0).plan, optimum(problem, 20.0).bound) == ((1, 1, 1), pytest.approx(3.0))
    alone = PlanProblem(problem.seconds, problem.noise, {}, problem.budget)
    assert optimum(alone, 20.0).bound == pytest.approx(5.0)
    assert (1, 1, 1) in pareto_front(problem)


@pytest.mark.parametrize("seed", range(4))
def test_the_certificate_is_the_best_of_all_plans_with_pairs(seed):
    problem = random_problem(seed, units=5)
    generator = random.Random(seed)
    choices = [(unit, choice) for unit in range(5) for choice in range(6)]
    for one, other in (generator.sample(choices, 2) for _ in range(30)):
        if one[0] < other[0]:
            problem.pairs[one, other] = [generator.uniform(-0.3, 0.3), 0.0]
    best = min(problem.time_of(plan) for plan in problem.plans() if problem.is_feasible(plan))
    assert optimum(problem, 20.0).bound == pytest.approx(best, rel=1e-6)


def test_only_the_most_sensitive_choices_are_paired():
    errors = ErrorsAtOutputs()
    for unit in range(MOST + 5):
        errors.add((unit, 1), [[np.full(3, unit + 1.0)]], [3.0 * (unit + 1) ** 2])
    pairs = errors.pairs()
    assert len(pairs) == MOST * (MOST - 1) // 2 and min(one[0] for one, _ in pairs) == 5
