"""The solver `as-exported`: every node computes in the type of the source model, wherever that may be chosen."""


def solve(problem):
    """Choose what is there already, else the first choice."""
    for variable in problem.variables:
        variable.chosen = variable.choices.with_nominal(variable.present) or next(iter(variable.choices))
        variable.why = f"{variable.format}, as in the source model"
