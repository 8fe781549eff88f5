"""The `min-cut` solver: the cheapest choices that the hard constraints allow.

If every variable has a low choice and float32, or no choice, the minimum is found exactly: see `two_choices.py`.
Otherwise the cheapest of `forward`, `fixpoint` and everything high is improved by expansion moves, and takes from the
others, and from everything low after the same moves, what lowers its cost: see `expansion.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dovetail.ir.formats import FLOAT32

from dovetail_precision.choices import Choice, uniform
from dovetail_precision.constraints import candidates
from dovetail_precision.costs import CostModel, cost_of
from dovetail_precision.def_use import DefUseChain, def_use_chains
from dovetail_precision.solvers.expansion import Expansion
from dovetail_precision.solvers.fixpoint import solve_fixpoint
from dovetail_precision.solvers.forward import solve_forward
from dovetail_precision.solvers.prices import Prices
from dovetail_precision.solvers.two_choices import minimise_two_choices

if TYPE_CHECKING:
    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable


def solve_min_cut(problem: TypingProblem, costs: CostModel | None = None) -> None:
    """Make choices for all variables of `problem` that minimise `cost_of(problem, costs)`; ties go high.

    With more than two formats to choose from, the result costs no more than those of `forward`, of `fixpoint` and of
    everything high, and is usually the minimum.

    Args:
        problem: The problem.
        costs: The prices; those of the problem if None.

    Raises:
        DovetailError: The cost model gives invalid costs, or SciPy is missing.
    """
    costs = costs or problem.costs
    chains = def_use_chains(problem)
    cast_readers = {id(variable) for chain in chains for variable in chain.cast_readers}
    known = {id(variable): candidates(problem, variable) for variable in problem.variables}
    free = {
        id(variable): variable
        for variable in problem.variables
        if len(known[id(variable)]) > 1 and id(variable) not in cast_readers
    }
    float32 = uniform(FLOAT32)
    if all(len(known[key]) == 2 and known[key][1] is float32 for key in free):
        minimise_two_choices(problem, chains, known, free, Prices(costs))
        _settle(chains)
    else:
        _expand(problem, chains, known, free, costs)
    _explain(problem, chains, free)


def _expand(
    problem: TypingProblem,
    chains: list[DefUseChain],
    known: dict[int, tuple[Choice, ...]],
    free: dict[int, Variable],
    costs: CostModel,
) -> None:
    """Improve the cheapest of the starts by moves, and everything low; and take from each what lowers the cost."""
    expansion = Expansion(chains, known, free, Prices(costs))
    starts = [_labels(problem, start) for start in (solve_forward, solve_fixpoint, _all(known, -1))]
    found = []
    for labels in (min(starts, key=lambda labels: _cost(problem, labels, costs)), _labels(problem, _all(known, 0))):
        _restore(problem, labels)
        expansion.run()
        _settle(chains)
        found.append(_labels(problem))
    best = min(found, key=lambda labels: _cost(problem, labels, costs))
    _restore(problem, best)
    for labels in (*found, *starts):
        expansion.fuse(labels)
    expansion.run()
    _settle(chains)


def _labels(problem: TypingProblem, solve: Callable[[TypingProblem], None] | None = None) -> dict[int, Choice]:
    """Return the choices, by the id of the variable, that `solve` makes; the present ones without it."""
    if solve is not None:
        before = [(variable.policy, variable.why, variable.because) for variable in problem.variables]
        solve(problem)
        for variable, noted in zip(problem.variables, before, strict=True):
            variable.policy, variable.why, variable.because = noted
    return {id(variable): variable.chosen for variable in problem.variables}


def _restore(problem: TypingProblem, labels: Mapping[int, Choice]) -> None:
    for variable in problem.variables:
        variable.chosen = labels[id(variable)]


def _cost(problem: TypingProblem, labels: Mapping[int, Choice], costs: CostModel) -> int:
    _restore(problem, labels)
    return cost_of(problem, costs)


def _all(known: Mapping[int, tuple[Choice, ...]], index: int) -> Callable[[TypingProblem], None]:
    """Return a solver that takes the first (0) or the last (-1) candidate of every variable."""

    def solve(problem: TypingProblem) -> None:
        for variable in problem.variables:
            variable.chosen = known[id(variable)][index]

    return solve


def _settle(chains: list[DefUseChain]) -> None:
    """Type what follows its readers or its producer."""
    for chain in chains:
        chain.type_cast_readers()
        chain.adopt_type_of_readers()


def _explain(problem: TypingProblem, chains: list[DefUseChain], free: dict[int, Variable]) -> None:
    """Record the neighbours of the same format as the reason of each free variable."""
    beside: dict[int, list[Any]] = {key: [] for key in free}

    def note(variable: Variable | None, other: Variable | None) -> None:
        if variable and other and id(variable) in beside and variable.format is other.format:
            beside[id(variable)].append(other.node)

    for chain in chains:
        if not chain.constant:
            for reader in chain.readers:
                note(reader, chain.producer)
                note(chain.producer, reader)
    for variable in problem.variables:
        if id(variable) in beside:
            variable.because = tuple(dict.fromkeys(beside[id(variable)]))[:8]
            variable.why = f"{variable.format}, the cheapest type given its neighbours"
