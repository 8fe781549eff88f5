"""Levels: numbers of legal nodes that no path lowers, and that every node outside raises.

Legal nodes of one level form a region: a path out of it, over a node outside and back to a legal node, arrives at a
higher level. The regions of any levels can therefore run one after the other, and any regions that can are levels.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_placement.engine_regions.problem import Problem


def earliest(problem: Problem) -> list[int]:
    """The lowest level of every node, from 0 on.

    The highest of them is as low as levels allow, so there are as few regions as possible. The number of a node outside
    is the highest level that it waits for, -1 if there is none.
    """
    level: list[int] = []
    for legal, before in zip(problem.legal, problem.before, strict=True):
        if legal:
            found = max((level[b] + (not problem.legal[b]) for b in before), default=0)
            level.append(max(found, 0))
        else:
            level.append(max((level[b] for b in before), default=-1))
    return level


def choices(problem: Problem) -> tuple[list[int], list[int], int]:
    """The lowest and the highest level of every node with as few regions as possible, and the highest level of all."""
    low = earliest(problem)
    top = max((level for level, legal in zip(low, problem.legal, strict=True) if legal), default=0)
    return low, latest(problem, top), top


def latest(problem: Problem, top: int) -> list[int]:
    """The highest level of every node if the highest of all is `top`.

    The number of a node outside is one below the lowest level that waits for it.
    """
    level = [top] * len(problem.legal)
    for node in reversed(range(len(level))):
        legal = problem.legal[node]
        for user in problem.behind[node]:
            bound = level[user] - (problem.legal[user] and not legal)
            level[node] = min(level[node], bound)
    return level


def gaps_from_below(problem: Problem, level: Sequence[int]) -> list[int]:
    """Numbers for the nodes outside: the highest level that each waits for; levels of legal nodes stay."""
    found = list(level)
    for node, legal in enumerate(problem.legal):
        if not legal:
            found[node] = max((found[b] for b in problem.before[node]), default=-1)
    return found


def gaps_from_above(problem: Problem, level: Sequence[int], top: int) -> list[int]:
    """Numbers for the nodes outside: one below the lowest level that waits for each; levels of legal nodes stay."""
    found = list(level)
    for node in reversed(range(len(found))):
        if not problem.legal[node]:
            found[node] = min((found[u] - problem.legal[u] for u in problem.behind[node]), default=top)
    return found
