"""What is cut into regions, and what a cut costs: integers only, apart from any graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

OUTSIDE = -1
"""The producer of a value that no node computes, and the region of a node that belongs to none."""


class Traffic(NamedTuple):
    """A value between nodes.

    Attributes:
        weight: Its bytes.
        producer: The node that computes it; `OUTSIDE` for an input of the graph.
        readers: The nodes that read it, each once.
        leaves: It is an output of the graph.
    """

    weight: int
    producer: int
    readers: tuple[int, ...]
    leaves: bool = False


@dataclass(frozen=True)
class Problem:
    """Nodes that may be in regions, nodes that may not, and the values between them.

    Attributes:
        legal: For every node, in topological order, whether it belongs into a region. The others run one by one.
        values: The values between nodes, without constants.
        atoms: Sets of legal nodes that an engine computes together.
        launch: The price of a region, in bytes: what could be moved in the time that it takes to start an engine.
        atom: The price of dividing an atom in two, in bytes.
    """

    legal: Sequence[bool]
    values: Sequence[Traffic]
    atoms: Sequence[tuple[int, ...]] = ()
    launch: int = 0
    atom: int = 0

    @cached_property
    def before(self) -> list[list[int]]:
        """The nodes that each node reads from."""
        found: list[list[int]] = [[] for _ in self.legal]
        for value in self.values:
            if value.producer != OUTSIDE:
                for reader in value.readers:
                    found[reader].append(value.producer)
        return found

    @cached_property
    def behind(self) -> list[list[int]]:
        """The nodes that read from each node."""
        found: list[list[int]] = [[] for _ in self.legal]
        for node, producers in enumerate(self.before):
            for producer in producers:
                found[producer].append(node)
        return found


def price(problem: Problem, region: Sequence[int]) -> int:
    """What a cut costs, in bytes: starting its regions, what crosses their borders, and atoms that are divided.

    A value that crosses a border is written once by the region that computes it, and read once by every other region.

    Args:
        problem: The problem.
        region: The region of every node; `OUTSIDE` for those that are not legal.
    """
    total = problem.launch * len({region[node] for node, legal in enumerate(problem.legal) if legal})
    for value in problem.values:
        home = region[value.producer] if value.producer != OUTSIDE else OUTSIDE
        reading = {region[reader] for reader in value.readers}
        written = home != OUTSIDE and (value.leaves or bool(reading - {home}))
        total += value.weight * (written + len(reading - {home, OUTSIDE}))
    return total + problem.atom * sum(len({region[node] for node in atom}) - 1 for atom in problem.atoms)


def run_after_another(problem: Problem, region: Sequence[int]) -> bool:
    """Whether regions, and the nodes outside of them, can run one after the other: their graph has no cycle."""
    count = max(region, default=OUTSIDE) + 1
    unit = [home if home != OUTSIDE else count + node for node, home in enumerate(region)]
    behind: dict[int, set[int]] = {number: set() for number in unit}
    for node, producers in enumerate(problem.before):
        for producer in producers:
            if unit[producer] != unit[node]:
                behind[unit[producer]].add(unit[node])
    waiting = dict.fromkeys(behind, 0)
    for users in behind.values():
        for user in users:
            waiting[user] += 1
    ready, done = [number for number, left in waiting.items() if not left], 0
    while ready:
        done += 1
        for user in behind[ready.pop()]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return done == len(behind)
