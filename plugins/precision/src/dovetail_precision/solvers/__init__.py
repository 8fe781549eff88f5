"""Solvers of the typing problem. Each takes a `TypingProblem` and chooses a type for every variable."""

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
    """The solver called `name`.

    Raises:
        UsageError: There is none of that name.
    """
    if name not in _SOLVERS:
        raise UsageError(f"there is no solver '{name}'", f"known: {', '.join(sorted(_SOLVERS))}")
    return _SOLVERS[name]
