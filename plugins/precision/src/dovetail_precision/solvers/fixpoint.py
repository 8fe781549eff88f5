"""The `fixpoint` solver: start with everything low that may be, and raise nodes until nothing changes.

Paddle's mixed precision pass works this way
(https://github.com/PaddlePaddle/Paddle/blob/develop/paddle/fluid/framework/ir/auto_mixed_precision_pass.cc), there by
names, here by values: an operator is high if its policy, its types or an overflowing constant forbid low. As in
Paddle's bfloat16 placement on CPUs, orphans are raised: nodes that need more casts low than high.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from dovetail_precision.constraints import choices, required_format
from dovetail_precision.def_use import DefUseChain, def_use_chains

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format

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
    worklist.raise_components()
    for chain in chains:
        chain.type_cast_readers()
        chain.adopt_type_of_readers()


def _could_be_low(variable: Variable) -> bool:
    return variable.low in variable.allowed and required_format(variable) in (None, variable.low)


class _CastCount:
    """The number of uses of one value in each type, and the casts that takes."""

    def __init__(self, chain: DefUseChain):
        self.chain = chain
        self.readings = Counter(reader.chosen for reader in chain.readers)
        if chain.kept:
            self.readings[chain.present] += 1

    def held(self) -> Format:
        """Return the type that it is computed in at present."""
        chain = self.chain
        if not chain.follows:
            return chain.held
        return chain.present if self.readings[chain.present] else chain.follows

    def number(self) -> int:
        """Return the number of types that it has to be cast to."""
        held = self.held()
        return sum(kind != held for kind, n in self.readings.items() if n)

    def state(self) -> tuple:
        """Return what neighbours' decisions depend on: per type, whether no, one or several uses have it."""
        return self.held(), frozenset((kind, min(n, 2)) for kind, n in self.readings.items() if n)


class _Worklist:
    """Candidates whose neighbourhood changed.

    A value is revisited only when its type changes or its number of uses in a type crosses one or two. Candidates are
    never lowered again, so that happens a few times per value and the whole is linear.
    """

    def __init__(self, chains: list[DefUseChain], candidates: dict[int, Variable]):
        self._candidates = candidates
        # The values that a candidate reads or computes, each with its number of uses by the candidate.
        self._around: dict[int, list[tuple[_CastCount, int]]] = {key: [] for key in candidates}
        for chain in chains:
            if chain.constant:
                continue
            joins, times = _CastCount(chain), Counter(map(id, chain.readers))
            for variable in _ends(chain):
                if id(variable) in candidates:
                    self._around[id(variable)].append((joins, times[id(variable)]))

    def run(self) -> None:
        """Raise candidates until none is left that needs more casts low than high."""
        waiting = deque(self._candidates.values())
        queued = set(self._candidates)
        while waiting:
            variable = waiting.popleft()
            queued.discard(id(variable))
            for other in self._reconsider(variable):
                if id(other) in self._candidates and id(other) not in queued:
                    queued.add(id(other))
                    waiting.append(other)

    def raise_components(self) -> None:
        """Raise connected components that need fewer casts high, although no member of them does alone.

        Components share no values, so one visit of each is enough.
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

    def _reconsider_component(self, component: list[Variable], values: list[_CastCount]) -> None:
        joins_low = sum(joins.number() for joins in values)
        for variable in component:
            _retype(variable, self._around[id(variable)], variable.present)
        saved = joins_low - sum(joins.number() for joins in values)
        for variable in component:
            if saved <= 0:
                _retype(variable, self._around[id(variable)], variable.low)
                continue
            del self._candidates[id(variable)]
            variable.because = tuple(_high(variable, self._around[id(variable)]))[:8]
            among = f"{len(component)} connected nodes" if len(component) > 1 else "it"
            variable.why = f"{variable.chosen}: {variable.low} for {among} would take {_more_joins(saved)}"

    def _reconsider(self, variable: Variable) -> list[Variable]:
        """Raise `variable` if that saves casts; return the variables to revisit."""
        around = self._around[id(variable)]
        before, joins_low = [joins.state() for joins, _ in around], sum(joins.number() for joins, _ in around)
        _retype(variable, around, variable.present)
        joins_high = sum(joins.number() for joins, _ in around)
        if joins_high >= joins_low:
            _retype(variable, around, variable.low)
            return []
        del self._candidates[id(variable)]
        variable.because = tuple(_high(variable, around))[:8]
        variable.why = f"{variable.chosen}: {variable.low} here would take {_more_joins(joins_low - joins_high)}"
        changed = [joins for (joins, _), state in zip(around, before, strict=True) if joins.state() != state]
        return [other for joins in changed for other in _ends(joins.chain)]


def _ends(chain: DefUseChain) -> list[Variable]:
    """Return the producer and the readers of a value, each once."""
    ends = [chain.producer, *chain.readers] if chain.producer else chain.readers
    return list({id(variable): variable for variable in ends}.values())


def _retype(variable: Variable, around: list[tuple[_CastCount, int]], kind: Format) -> None:
    for joins, times in around:
        joins.readings[variable.chosen] -= times
        joins.readings[kind] += times
    variable.chosen = kind


def _high(variable: Variable, around: list[tuple[_CastCount, int]]) -> dict[ir.Node, None]:
    """Return the high neighbours of `variable`: they share a value with it."""
    found = {}
    for joins, _ in around:
        for other in (joins.chain.producer, *joins.chain.readers[:8]):
            if other is not None and other is not variable and other.chosen == variable.chosen:
                found[other.node] = None
    return found


def _more_joins(joins: int) -> str:
    return "one more join" if joins == 1 else f"{joins} more joins"
