"""Run the solver of a request, and check what it chose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, UsageError
from dovetail.plugin.isolation import calling
from dovetail.suggestions import did_you_mean

from dovetail_precision.choices import Choice

if TYPE_CHECKING:
    from dovetail.plugin import Registry

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable


def check_solver(name: str, registry: Registry) -> None:
    """Check that a solver is registered as `name`, without loading it.

    Raises:
        UsageError: There is none; suggests similar names.
    """
    if name not in registry.solver:
        known = ", ".join(registry.solver)
        raise UsageError(f"unknown solver '{name}'{did_you_mean(name, registry.solver)}", f"installed: {known}")


def solve(problem: TypingProblem, name: str, registry: Registry) -> None:
    """Let the solver that is registered as `name` choose for every variable of `problem`.

    Raises:
        DovetailError: No solver has that name; or it fails, or makes an illegal choice: names its distribution.
    """
    check_solver(name, registry)
    solver = registry.solver[name]
    who = registry.solver.title(name)
    with calling(who):
        solver(problem)
    for variable in problem.variables:
        # A Cast reads what arrives, whatever the backend says of its input.
        if not (isinstance(variable.chosen, Choice) and (variable.takes_any or variable.chosen in variable.choices)):
            raise _illegal(variable, who)


def _illegal(variable: Variable, who: str) -> DovetailError:
    chosen, node = variable.chosen, variable.node
    text = "nothing" if chosen is None else str(chosen.nominal if isinstance(chosen, Choice) else repr(chosen))
    if isinstance(chosen, Choice) and chosen.ports:
        text += "".join(f", {port} {format_}" for port, format_ in chosen.ports.items())
    offered = ", ".join(dict.fromkeys(str(choice.nominal) for choice in variable.choices))
    return DovetailError(
        f"{who} chose {text} for '{node.name}' ({node.op_type}), which may have {offered}",
        "a solver sets `chosen` of every variable to one of its `choices`; name another one with --solver",
    )
