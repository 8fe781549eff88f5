"""Solvers of the typing problem: each makes a choice for every variable of a `TypingProblem`."""
