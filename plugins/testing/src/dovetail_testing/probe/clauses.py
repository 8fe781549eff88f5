"""Limits of one operator, learned from the nodes that were tried.

A clause describes nodes that the engine does not compute: one condition, or several that hold together. Clauses are
chosen greedily: each time the one that excludes the most wrong nodes and the fewest right ones.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dovetail_testing.probe.conditions import Condition, conditions_on
from dovetail_testing.probe.observing import NodeNames, Observation

_ENGINE = re.compile(r"^[\w-]+ (?:refuses|fails at|failed while|could not load) [^:]*: ")
"""What an engine's error begins with, which is the same for all nodes."""

_PRICE = 3  # right nodes that are excluded count as so many wrong ones
_MOST_PAIRED = 160  # conditions that are combined in pairs
_MOST_TRIPLED = 40
_COMPLEXITY = 0.4  # what a condition more costs, in wrong nodes


@dataclass(frozen=True)
class Clause:
    """Nodes that the engine does not compute: `condition` under all `guards`.

    Attributes:
        guards: The conditions under which the limit applies.
        condition: What is then forbidden.
        wrong: The wrong nodes that it excludes.
        lost: The number of right nodes that it excludes.
    """

    guards: tuple[Condition, ...]
    condition: Condition
    wrong: tuple[Observation, ...] = ()
    lost: int = 0

    @property
    def reason(self) -> str:
        """The most frequent reason of the nodes that it excludes."""
        return Counter(map(reason_of, self.wrong)).most_common(1)[0][0] if self.wrong else ""

    def excludes(self, names: NodeNames) -> bool:
        """Return whether it excludes a node."""
        return self.condition.forbids(names) and all(guard.holds(names) for guard in self.guards)


@dataclass
class OperatorRule:
    """What was learned about an operator.

    Attributes:
        operator: The operator.
        observations: The nodes that were tried.
        types: The element types that the engine computes, by type parameter.
        ports: The parameter of each port.
        clauses: What it does not compute of them.
    """

    operator: str
    observations: Sequence[Observation]
    types: dict[str, list[str]] = field(default_factory=dict)
    ports: dict[str, str] = field(default_factory=dict)
    clauses: list[Clause] = field(default_factory=list)

    @property
    def right(self) -> int:
        """The number of nodes that the engine computes."""
        return sum(each.right for each in self.observations)

    @property
    def is_taken(self) -> bool:
        """Whether the file takes the operator: some nodes are right, and more than limits would lose."""
        return any(each.right and self.accepts(each.names) for each in self.observations)

    def accepts(self, names: NodeNames) -> bool:
        """Return whether the rule accepts a node."""
        typed = all(dtype in self.types.get(parameter, ()) for parameter, dtype in names.types.items())
        return typed and not any(clause.excludes(names) for clause in self.clauses)


def learned(operator: str, observations: Sequence[Observation], deadline: float = math.inf) -> OperatorRule:
    """Learn the rule of an operator from the nodes that were tried.

    Args:
        operator: The operator.
        observations: The nodes.
        deadline: The time, of `time.monotonic`, from which on conditions are no longer combined.
    """
    rule = OperatorRule(operator, observations)
    for each in observations:
        rule.ports.update(each.names.ports)
        for parameter, dtype in each.names.types.items():
            listed = rule.types.setdefault(parameter, [])
            if each.right and dtype not in listed:
                listed.append(dtype)
    typed = [each for each in observations if all(t in rule.types[p] for p, t in each.names.types.items())]
    rule.clauses = _clauses(typed, rule, deadline)
    return rule


def _clauses(observations: Sequence[Observation], rule: OperatorRule, deadline: float) -> list[Clause]:
    """Choose clauses greedily until no more wrong nodes can be excluded at a profit."""
    bits = _Bits(observations)
    bad = bits.mask(lambda each: not each.right)
    good = bits.mask(lambda each: each.right)
    if not bad or not good:
        return []
    conditions = list(conditions_on(observations, rule.types))
    candidates = list(_candidates(conditions, bits, bad, good, deadline))
    chosen: list[Clause] = []
    while bad:
        gains = [
            (mask & bad).bit_count() - _PRICE * (mask & good).bit_count() - _COMPLEXITY * len(guards)
            for mask, guards, _ in candidates
        ]
        best = max(range(len(gains)), key=gains.__getitem__, default=-1)
        if best < 0 or gains[best] <= 0:
            break
        mask, guards, at = candidates[best]
        own, lost = bits.chosen(mask & bad), len(bits.chosen(mask & good))
        chosen.append(Clause(tuple(conditions[guard] for guard in guards), conditions[at], own, lost))
        bad, good = bad & ~mask, good & ~mask
    return chosen


class _Bits:
    """Sets of nodes as numbers, in which each node has as many bits as its weight."""

    def __init__(self, observations: Sequence[Observation]):
        self._observations = observations
        ends = list(itertools.accumulate((each.weight for each in observations), initial=0))
        self._masks = [((1 << each.weight) - 1) << begin for each, begin in zip(observations, ends, strict=False)]

    def mask(self, includes: Callable[[Observation], bool]) -> int:
        """Return the set of the nodes for which a function is true."""
        chosen = 0
        for each, mask in zip(self._observations, self._masks, strict=True):
            if includes(each):
                chosen |= mask
        return chosen

    def chosen(self, mask: int) -> tuple[Observation, ...]:
        """Return the nodes of a set."""
        return tuple(each for each, own in zip(self._observations, self._masks, strict=True) if own & mask)


def _candidates(
    conditions: Sequence[Condition], bits: _Bits, bad: int, good: int, deadline: float
) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """Yield sets of nodes with the guards and the condition that describe them, the simple ones first."""
    forbidden = [bits.mask(_met_by(one.forbids)) for one in conditions]
    held = [bits.mask(_met_by(one.holds)) if one.guard else 0 for one in conditions]
    seen: set[int] = set()
    useful = [at for at in range(len(conditions)) if forbidden[at] & bad]
    for at in useful:
        if forbidden[at] not in seen:
            seen.add(forbidden[at])
            yield forbidden[at], (), at
    paired = sorted(useful, key=lambda at: -(forbidden[at] & bad).bit_count())[:_MOST_PAIRED]
    guards = sorted(range(len(conditions)), key=lambda at: -(held[at] & bad).bit_count())[:_MOST_PAIRED]
    guards = [at for at in guards if held[at] & bad]
    for number in (1, 2):
        if number == 2:
            paired, guards = paired[:_MOST_TRIPLED], guards[:_MOST_TRIPLED]
        for at, chosen in itertools.product(paired, itertools.combinations(guards, number)):
            if not math.isinf(deadline) and time.monotonic() > deadline:
                return
            if len({conditions[each].name for each in (at, *chosen)}) <= len(chosen):
                continue  # a limit that depends on the value that it limits reads as a riddle
            mask = forbidden[at]
            for guard in chosen:
                mask &= held[guard]
            if mask not in seen and (mask & bad).bit_count() > _PRICE * (mask & good).bit_count():
                seen.add(mask)
                yield mask, chosen, at


def _met_by(condition: Callable[[NodeNames], bool]) -> Callable[[Observation], bool]:
    return lambda each: condition(each.names)


def reason_of(each: Observation) -> str:
    """Return in a few words why a node is not right."""
    outcome = each.outcome
    if outcome.stage == "end":
        return f"ends the process: {outcome.reason}" if "ended with" in outcome.reason else f"hangs: {outcome.reason}"
    if outcome.stage in ("load", "run"):
        return f"{'refused' if outcome.stage == 'load' else 'fails'}: {_ENGINE.sub('', outcome.reason)}"
    return f"wrong: {outcome.broken or f'by {outcome.share:.2g} of the largest value'}"
