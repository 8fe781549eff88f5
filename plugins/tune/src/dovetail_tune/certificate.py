"""The certificate: the exact optimum of the additive problem, by HiGHS, which no plan of these measurements beats."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from dovetail.errors import DovetailError

from dovetail_tune.problem import PlanProblem

_LOUD = 1e6  # times the budget; more than any errors cancel, and not more than HiGHS's tolerances bear


@dataclass(frozen=True)
class Optimum:
    """What HiGHS proved.

    Attributes:
        bound: No feasible plan takes less predicted time, in seconds.
        plan: The best plan that was found; None if none is feasible.
        is_exact: Whether the plan takes no more than the bound.
    """

    bound: float
    plan: tuple[int, ...] | None
    is_exact: bool


def optimum(problem: PlanProblem, seconds: float) -> Optimum:
    """Minimize the predicted time subject to the noise budgets, as an integer program.

    A variable per unit and choice is 1 if the unit has it; one per border and pair of choices is 1 if both ends do, and
    so is one per pair of choices whose noise is not the sum.

    Args:
        problem: The problem.
        seconds: Time limit; the bound holds in any case.

    Raises:
        DovetailError: SciPy is not installed.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array
    except ImportError as error:
        raise DovetailError("the certificate needs SciPy", "pip install 'dovetail-tune[certificate]'") from error
    at = {key: number for number, key in enumerate(_variables(problem))}
    cost = np.array([_cost(problem, key) for key in at])
    possible = np.isfinite(cost)  # the others have no time, because they failed
    cost[~possible] = 0.0
    rows: list[tuple[Mapping[int, float], float, float]] = [
        ({at[unit, choice]: 1.0 for choice in range(len(times))}, 1.0, 1.0)
        for unit, times in enumerate(problem.seconds)
    ]
    for (one, other), table in problem.borders.items():
        for i in range(len(table)):
            ends = {at[one, other, i, j]: 1.0 for j in range(len(table[i]))}
            rows.append(({**ends, at[one, i]: -1.0}, 0.0, 0.0))
        for j in range(len(table[0])):
            ends = {at[one, other, i, j]: 1.0 for i in range(len(table))}
            rows.append(({**ends, at[other, j]: -1.0}, 0.0, 0.0))
    for first, second in problem.pairs:
        both = at[first, second]
        rows += [({both: 1.0, at[end]: -1.0}, -math.inf, 0.0) for end in (first, second)]
        rows.append(({both: 1.0, at[first]: -1.0, at[second]: -1.0}, -1.0, math.inf))
    for output, most in enumerate(problem.budget):
        if most < math.inf:
            noise = {
                at[unit, choice]: values[output] / most if most else math.inf * bool(values[output])
                for unit, choices in enumerate(problem.noise)
                for choice, values in enumerate(choices)
            }
            together = {at[one, other]: more[output] / most for (one, other), more in problem.pairs.items() if most}
            if not any(share < 0 for share in together.values()):
                forbidden = [variable for variable, share in noise.items() if share > 1]
                rows += [({variable: 1.0}, 0.0, 0.0) for variable in forbidden]
                noise = {variable: share for variable, share in noise.items() if share <= 1}
            noise = {variable: min(share, _LOUD) for variable, share in noise.items()}
            rows.append(({v: share for v, share in {**noise, **together}.items() if share}, -math.inf, 1.0))
    entries = [(number, variable, value) for number, (row, _, _) in enumerate(rows) for variable, value in row.items()]
    numbers, variables, values = map(np.array, zip(*entries))
    matrix = coo_array((values, (numbers, variables)), shape=(len(rows), len(at))).tocsr()
    scale = float(np.abs(cost).max()) or 1.0  # HiGHS's tolerances are absolute
    result = milp(
        cost / scale,
        constraints=LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows]),
        bounds=Bounds(0, possible.astype(float)), integrality=np.ones(len(at)),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )  # fmt: skip
    if result.x is None:
        return Optimum(math.inf if result.status == 2 else -math.inf, None, result.status == 2)
    plan = tuple(
        int(np.argmax([result.x[at[unit, choice]] for choice in range(len(times))]))
        for unit, times in enumerate(problem.seconds)
    )
    proven = result.mip_dual_bound
    bound = (result.fun if proven is None else min(result.fun, proven)) * scale
    return Optimum(bound, plan, result.status == 0)


def _variables(problem: PlanProblem) -> list[tuple[Any, ...]]:
    units = [(unit, choice) for unit, times in enumerate(problem.seconds) for choice in range(len(times))]
    pairs = [
        (one, other, i, j)
        for (one, other), table in problem.borders.items()
        for i in range(len(table))
        for j in range(len(table[i]))
    ]
    return [*units, *pairs, *problem.pairs]


def _cost(problem: PlanProblem, key: tuple[Any, ...]) -> float:
    if key in problem.pairs:
        return 0.0
    if len(key) == 2:
        return problem.seconds[key[0]][key[1]]
    one, other, i, j = key
    return problem.borders[one, other][i][j]
