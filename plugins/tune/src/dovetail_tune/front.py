"""The Pareto front of time and noise: the minimum of time + price * noise, over a sweep of prices.

Where neighbors form a forest, as the segments of a model do, dynamic programming finds the minimum. Other graphs are
solved by expansion moves over minimum cuts, from several starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dovetail_precision.solvers.energy import Energy

from dovetail_tune.problem import PlanProblem

_PRICES = 60
_SWEEPS = 12
Plan = tuple[int, ...]


def pareto_front(problem: PlanProblem) -> list[Plan]:
    """Return plans of which none is faster and less noisy than another, fastest first.

    Noise counts relative to the budget of its output, where there is one.
    """
    weights = [1 / most if 0 < most < math.inf else 1.0 for most in problem.budget]
    found = {minimize(problem, [0.0] * len(weights))}
    slowest = sum(max(time for time in times if time < math.inf) for times in problem.seconds)
    for step in range(_PRICES):
        price = slowest * 10.0 ** (-6 + 12 * step / (_PRICES - 1))
        found.add(minimize(problem, [price * weight for weight in weights]))

    def worst(plan: Plan) -> float:
        return max((n * w for n, w in zip(problem.noise_of(plan), weights)), default=0.0)

    front: list[Plan] = []
    for plan in sorted(found, key=lambda p: (problem.time_of(p), worst(p))):
        if not front or worst(plan) < worst(front[-1]):
            front.append(plan)
    return front


def minimize(problem: PlanProblem, prices: Sequence[float]) -> Plan:
    """Return a plan with the least time plus noise at `prices` per output.

    It is the minimum if the graph is a forest and the noise has no pairs.
    """
    costs = [
        [time + sum(p * n for p, n in zip(prices, noise)) for time, noise in zip(times, noises)]
        for times, noises in zip(problem.seconds, problem.noise)
    ]
    order = _leaves_first(problem)
    plan = _by_elimination(problem, costs, order) if order is not None else _by_expansion(problem, costs)
    return _improved(problem, plan, prices) if problem.pairs and any(prices) else plan


def _improved(problem: PlanProblem, plan: Plan, prices: Sequence[float]) -> Plan:
    """Change one unit at a time while that lowers the total with the noise of pairs, which solvers leave out."""

    def total(one: Sequence[int]) -> float:
        return problem.time_of(one) + sum(p * n for p, n in zip(prices, problem.noise_of(one)))

    best, least = list(plan), total(plan)
    for _ in range(_SWEEPS):
        before = least
        for unit, times in enumerate(problem.seconds):
            for choice in range(len(times)):
                changed = [*best[:unit], choice, *best[unit + 1 :]]
                if (found := total(changed)) < least:
                    best, least = changed, found
        if least >= before:
            break
    return tuple(best)


def _leaves_first(problem: PlanProblem) -> list[tuple[int, int | None]] | None:
    """Return the units of a forest, each with the neighbor that is left when it goes; None if there is a cycle."""
    around: list[set[int]] = [set() for _ in problem.seconds]
    for one, other in problem.borders:
        if other in around[one] or one == other:
            return None
        around[one].add(other)
        around[other].add(one)
    waiting = [unit for unit, others in enumerate(around) if len(others) <= 1]
    order: list[tuple[int, int | None]] = []
    gone: set[int] = set()
    while waiting:
        unit = waiting.pop()
        if unit in gone:
            continue
        gone.add(unit)
        parent = next(iter(around[unit]), None)
        order.append((unit, parent))
        if parent is not None:
            around[parent].discard(unit)
            if len(around[parent]) <= 1:
                waiting.append(parent)
    return order if len(order) == len(around) else None


def _by_elimination(
    problem: PlanProblem, costs: Sequence[Sequence[float]], order: Sequence[tuple[int, int | None]]
) -> Plan:
    """Fold every leaf into its neighbor, and choose backwards."""
    totals = [list(row) for row in costs]
    for unit, parent in order:
        if parent is not None:
            for choice in range(len(totals[parent])):
                totals[parent][choice] += min(_joined(problem, totals, unit, parent, choice))
    plan = [0] * len(totals)
    for unit, parent in reversed(order):
        ends = totals[unit] if parent is None else _joined(problem, totals, unit, parent, plan[parent])
        plan[unit] = ends.index(min(ends))
    return tuple(plan)


def _joined(
    problem: PlanProblem, totals: Sequence[Sequence[float]], unit: int, parent: int, choice: int
) -> list[float]:
    """Return the totals of a unit with the border to the choice of its parent."""
    border = problem.borders.get((unit, parent))
    if border is not None:
        return [total + border[own][choice] for own, total in enumerate(totals[unit])]
    border = problem.borders[parent, unit]
    return [total + border[choice][own] for own, total in enumerate(totals[unit])]


def _by_expansion(problem: PlanProblem, costs: Sequence[Sequence[float]]) -> Plan:
    """Offer every choice to all units in turn, as long as that helps, from each uniform plan."""
    most = max(map(len, costs))
    finite = [cost for row in costs for cost in row if cost < math.inf]
    costs = [[min(cost, 1e3 * sum(map(abs, finite))) for cost in row] for row in costs]  # capacities are finite

    def total(plan: Sequence[int]) -> float:
        borders = sum(table[plan[one]][plan[other]] for (one, other), table in problem.borders.items())
        return sum(row[choice] for row, choice in zip(costs, plan)) + borders

    best: list[int] = []
    for start in range(most):
        plan = [min(start, len(row) - 1) for row in costs]
        for _ in range(_SWEEPS):
            before = total(plan)
            for label in range(most):
                moved = _moved(problem, costs, plan, label)
                plan = moved if total(moved) < total(plan) else plan
            if total(plan) >= before:
                break
        if not best or total(plan) < total(best):
            best = plan
    return tuple(best)


def _moved(problem: PlanProblem, costs: Sequence[Sequence[float]], plan: Sequence[int], label: int) -> list[int]:
    """Return the plan after the best move of any units to `label`; terms that no cut can express are left out."""
    offered = [min(label, len(row) - 1) for row in costs]
    scale = 1e6 / max(1e-12, max(abs(cost) for row in costs for cost in row))  # capacities are integers
    energy = Energy()
    bias = [row[stay] - row[move] for row, stay, move in zip(costs, plan, offered)]  # low is to move
    pairs = []
    for (one, other), table in problem.borders.items():
        both, first = table[offered[one]][offered[other]], table[offered[one]][plan[other]]
        second, none = table[plan[one]][offered[other]], table[plan[one]][plan[other]]
        # none + (moves of one) * (first - none) + (moves of other) * (both - first) + a term that a cut has.
        bias[one] += none - first
        bias[other] += first - both
        pairs.append((other, one, max(0.0, first + second - both - none)))
    for value in bias:
        energy.add(round(value * scale))
    for low, high, cost in pairs:
        energy.add_pairwise(low, high, round(cost * scale))
    return [move if low else stay for low, stay, move in zip(energy.minimize(), plan, offered)]
