"""Solvers of the typing problem: each chooses a type for every variable of a `TypingProblem`."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.errors import UsageError

from dovetail_precision.problem import TypingProblem
from dovetail_precision.solvers.fixpoint import solve_fixpoint
from dovetail_precision.solvers.forward import solve_forward
from dovetail_precision.solvers.min_cut import solve_min_cut

__all__ = ["solver"]

_SOLVERS: dict[str, Callable[[TypingProblem], None]] = {
    "fixpoint": solve_fixpoint,
    "forward": solve_forward,
    "min-cut": solve_min_cut,
}


def solver(name: str) -> Callable[[TypingProblem], None]:
    """Return the solver called `name`.

    Raises:
        UsageError: No solver has that name.
    """
    if name not in _SOLVERS:
        raise UsageError(f"unknown solver '{name}'", f"known: {', '.join(sorted(_SOLVERS))}")
    return _SOLVERS[name]
