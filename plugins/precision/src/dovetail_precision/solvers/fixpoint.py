"""The `fixpoint` solver: everything that may be low starts low, and a worklist only ever takes it back.

That is how Paddle's mixed precision pass decides
(https://github.com/PaddlePaddle/Paddle/blob/develop/paddle/fluid/framework/ir/auto_mixed_precision_pass.cc), here on
values instead of names: an operator is high where its policy, its types or a constant that would overflow forbid low.
From Paddle's placement of bfloat16 on CPUs comes that orphans go back: what needs more joins low than high.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from dovetail_precision.constraints import choices, required_type
from dovetail_precision.def_use import DefUseChain, def_use_chains

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["solve_fixpoint"]


def solve_fixpoint(problem: TypingProblem) -> None:
    """Choose a type for every variable of `problem`."""
    candidates: dict[int, Variable] = {}
    chains = def_use_chains(problem)
    cast_readers = {id(variable) for chain in chains for variable in chain.cast_readers}
    for variable in problem.variables:
        low, high = choices(problem, variable)
        variable.chosen = low
        if low != high and id(variable) not in cast_readers:
            candidates[id(variable)] = variable
            variable.why = f"{low}: nothing forbids it"
        elif _could_be_low(variable) and problem.obstacle(variable, variable.low):
            variable.why = f"{high}: {problem.obstacle(variable, variable.low)}"
    worklist = _Worklist(chains, candidates)
    worklist.run()
    worklist.revert_components()
    for chain in chains:
        chain.type_cast_readers()
        chain.adopt_type_of_readers()


def _could_be_low(variable: Variable) -> bool:
    return variable.low in variable.allowed and required_type(variable) in (None, variable.low)


class _Joins:
    """How often one value is read in each type, and how many joins that takes."""

    def __init__(self, chain: DefUseChain):
        self.chain = chain
        self.readings = Counter(reader.chosen for reader in chain.readers)
        if chain.kept:
            self.readings[chain.present] += 1

    def held(self) -> str:
        """The type that it is computed in, as things are."""
        chain = self.chain
        if not chain.follows:
            return chain.held
        return chain.present if self.readings[chain.present] else chain.follows

    def number(self) -> int:
        """How many types it has to be converted to."""
        held = self.held()
        return sum(kind != held for kind, n in self.readings.items() if n)

    def state(self) -> tuple:
        """What the decisions of others depend on: types read by none, by one, or by more."""
        return self.held(), tuple(sorted((kind, min(n, 2)) for kind, n in self.readings.items() if n))


class _Worklist:
    """Candidates whose surroundings changed.

    A value is looked at again only when its type changes or when the number of readings in a type passes one or two,
    which happens a few times per value because candidates never return: the whole is linear.
    """

    def __init__(self, chains: list[DefUseChain], candidates: dict[int, Variable]):
        self._candidates = candidates
        # Each value that a candidate reads or computes, with how often it reads it.
        self._around: dict[int, list[tuple[_Joins, int]]] = {key: [] for key in candidates}
        for chain in chains:
            if chain.constant:
                continue
            joins, times = _Joins(chain), Counter(map(id, chain.readers))
            for variable in _ends(chain):
                if id(variable) in candidates:
                    self._around[id(variable)].append((joins, times[id(variable)]))

    def run(self) -> None:
        """Take back until every candidate that is left needs no more joins low than high."""
        waiting = deque(self._candidates.values())
        queued = set(self._candidates)
        while waiting:
            variable = waiting.popleft()
            queued.discard(id(variable))
            for other in self._reconsider(variable):
                if id(other) in self._candidates and id(other) not in queued:
                    queued.add(id(other))
                    waiting.append(other)

    def revert_components(self) -> None:
        """Take back what needs fewer joins high as a whole, though no member of it does alone.

        Members of a component share values; those of two components never do, so one look at each is enough.
        """
        beside: dict[int, list[Variable]] = {}
        for variable in self._candidates.values():
            for joins, _ in self._around[id(variable)]:
                beside.setdefault(id(joins), []).append(variable)
        seen: set[int] = set()
        for first in list(self._candidates.values()):
            if id(first) in seen:
                continue
            seen.add(id(first))
            component, touched = [first], {}
            for variable in component:
                for joins, _ in self._around[id(variable)]:
                    if id(joins) in touched:
                        continue
                    touched[id(joins)] = joins
                    fresh = [other for other in beside[id(joins)] if id(other) not in seen]
                    seen.update(map(id, fresh))
                    component.extend(fresh)
            self._reconsider_component(component, list(touched.values()))

    def _reconsider_component(self, component: list[Variable], values: list[_Joins]) -> None:
        joins_low = sum(joins.number() for joins in values)
        for variable in component:
            _move(variable, self._around[id(variable)], variable.present)
        saved = joins_low - sum(joins.number() for joins in values)
        for variable in component:
            if saved <= 0:
                _move(variable, self._around[id(variable)], variable.low)
                continue
            del self._candidates[id(variable)]
            variable.because = tuple(_high(variable, self._around[id(variable)]))[:8]
            among = f"{len(component)} nodes around here" if len(component) > 1 else "it"
            variable.why = f"{variable.chosen}: {variable.low} for {among} would take {_more(saved)}"

    def _reconsider(self, variable: Variable) -> list[Variable]:
        """Take `variable` back if that saves joins; the variables to look at after it."""
        around = self._around[id(variable)]
        before, joins_low = [joins.state() for joins, _ in around], sum(joins.number() for joins, _ in around)
        _move(variable, around, variable.present)
        joins_high = sum(joins.number() for joins, _ in around)
        if joins_high >= joins_low:
            _move(variable, around, variable.low)
            return []
        del self._candidates[id(variable)]
        variable.because = tuple(_high(variable, around))[:8]
        variable.why = f"{variable.chosen}: {variable.low} here would take {_more(joins_low - joins_high)}"
        changed = [joins for (joins, _), state in zip(around, before, strict=True) if joins.state() != state]
        return [other for joins in changed for other in _ends(joins.chain)]


def _ends(chain: DefUseChain) -> list[Variable]:
    """Who computes the value and who reads it, each once."""
    ends = [chain.producer, *chain.readers] if chain.producer else chain.readers
    return list({id(variable): variable for variable in ends}.values())


def _move(variable: Variable, around: list[tuple[_Joins, int]], kind: str) -> None:
    for joins, times in around:
        joins.readings[variable.chosen] -= times
        joins.readings[kind] += times
    variable.chosen = kind


def _high(variable: Variable, around: list[tuple[_Joins, int]]) -> dict[ir.Node, None]:
    """The nodes around `variable` that are high: they compute or read what it reads, or read what it computes."""
    found = {}
    for joins, _ in around:
        for other in (joins.chain.producer, *joins.chain.readers[:8]):
            if other is not None and other is not variable and other.chosen == variable.chosen:
                found[other.node] = None
    return found


def _more(joins: int) -> str:
    return "one more join" if joins == 1 else f"{joins} more joins"
