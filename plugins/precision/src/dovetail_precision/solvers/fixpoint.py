"""The `fixpoint` solver: start with everything low that may be, and raise nodes until nothing changes.

Paddle's mixed precision pass works this way
(https://github.com/PaddlePaddle/Paddle/blob/develop/paddle/fluid/framework/ir/auto_mixed_precision_pass.cc), there by
names, here by values: an operator is high if its policy, its types or an overflowing constant forbid low. As in
Paddle's bfloat16 placement on CPUs, orphans are raised: nodes that need more casts low than high.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.ir import Format

from dovetail_precision.choices import FormatChoice
from dovetail_precision.constraints import candidates, required_format
from dovetail_precision.def_use import DefUseChain, def_use_chains

if TYPE_CHECKING:
    from dovetail_precision.choices import SharedFormat
    from dovetail_precision.problem import FormatVariable, TypingProblem


def solve_fixpoint(problem: TypingProblem) -> None:
    """Choose formats for every variable of `problem`."""
    free: dict[int, tuple[FormatVariable, FormatChoice, FormatChoice]] = {}
    chains = def_use_chains(problem)
    cast_readers = {id(variable) for chain in chains for variable in chain.cast_readers}
    for variable in problem.variables:
        found = candidates(problem, variable)
        low, high = found[0], found[-1]
        variable.chosen = low
        if low is not high and id(variable) not in cast_readers:
            free[id(variable)] = variable, low, high
            variable.why = f"{low.nominal}: nothing forbids it"
        elif _could_be_low(variable) and problem.obstacle(variable, variable.low):
            variable.why = f"{high.nominal}: {problem.obstacle(variable, variable.low)}"
    worklist = _Worklist(chains, free)
    worklist.run()
    worklist.raise_components()
    for chain in chains:
        chain.type_cast_readers()
        chain.adopt_type_of_readers()


def _could_be_low(variable: FormatVariable) -> bool:
    return variable.low in variable.choices.floats and required_format(variable) in (None, variable.low)


class _CastCount:
    """The number of uses of one value in each format, and the casts that they need.

    Casts inside of regions with a high-precision border do not count: for their neighbors, such regions are high.
    """

    def __init__(self, chain: DefUseChain):
        self.chain = chain
        self.readings = Counter(self.reading(variable, port) for variable, port in chain.uses)
        if chain.kept:
            self.readings[chain.producer is not None and chain.producer.high_border, chain.present] += 1

    def reading(
        self, variable: FormatVariable, port: str, choice: FormatChoice | None = None
    ) -> tuple[bool, Format | SharedFormat]:
        """Return whether a use is across a high border, and the format that it reads there."""
        kind = variable.held_at(port, choice)
        across = variable.shares_high_border(self.chain.producer)
        return across, _widened(kind, variable) if across and variable.high_border else kind

    def held(self, across: bool = False) -> Format | SharedFormat:
        """Return the format that it is computed in at present, or that it has across a high border."""
        chain = self.chain
        if not chain.follows:
            producer = chain.producer
            return _widened(chain.held, producer) if across and producer and producer.high_border else chain.held
        return chain.present if any(self.readings[side, chain.present] for side in (False, True)) else chain.follows

    def number(self) -> int:
        """Return the number of formats that it has to be cast to."""
        return len({(held, kind) for held, kind in self._conversions() if kind is not held})

    def _conversions(self) -> Iterator[tuple[Format | SharedFormat, Format | SharedFormat]]:
        """Yield the held and the read format of all uses that the source model does not convert."""
        value = self.chain.value
        for (across, kind), uses in self.readings.items():
            held = self.held(across)
            free = value.adopted if held is value.present else {value.present} if held in value.adopted else ()
            if uses and kind not in free:
                yield held, kind

    def state(self) -> tuple:
        """Return the state that neighbors' decisions depend on: per format, whether no, one or several uses have it."""
        return self.held(), frozenset((kind, min(n, 2)) for kind, n in self.readings.items() if n)


def _widened(kind: Format | SharedFormat, variable: FormatVariable) -> Format | SharedFormat:
    """Return the high precision in place of a float format."""
    return variable.high if isinstance(kind, Format) and kind.is_float else kind


class _Around(NamedTuple):
    """A value that a candidate reads or computes, with the ports at which the candidate reads it."""

    casts: _CastCount
    read_at: list[str]


class _Worklist:
    """Candidates whose neighborhood changed.

    A value is revisited only when its format changes or its number of uses in a format crosses one or two. Candidates
    are never lowered again, so that happens a few times per value and the whole is linear.
    """

    def __init__(self, chains: list[DefUseChain], free: dict[int, tuple[FormatVariable, FormatChoice, FormatChoice]]):
        # A candidate with its lowest and its highest choice.
        self._free = free
        self._around: dict[int, list[_Around]] = {key: [] for key in free}
        for chain in chains:
            if chain.constant:
                continue
            casts = _CastCount(chain)
            read_at: dict[int, list[str]] = {}
            for variable, port in chain.uses:
                read_at.setdefault(id(variable), []).append(port)
            for variable in _ends(chain):
                if id(variable) in free:
                    self._around[id(variable)].append(_Around(casts, read_at.get(id(variable), [])))

    def run(self) -> None:
        """Raise candidates until none is left that needs more casts low than high."""
        waiting = deque(variable for variable, _, _ in self._free.values())
        queued = set(self._free)
        while waiting:
            variable = waiting.popleft()
            queued.discard(id(variable))
            for other in self._reconsider(variable):
                if id(other) in self._free and id(other) not in queued:
                    queued.add(id(other))
                    waiting.append(other)

    def raise_components(self) -> None:
        """Raise connected components that need fewer casts high, although no member of them does alone.

        Components share no values, so one visit of each is enough.
        """
        beside: dict[int, list[FormatVariable]] = {}
        for variable, _, _ in self._free.values():
            for casts, _ in self._around[id(variable)]:
                beside.setdefault(id(casts), []).append(variable)
        seen: set[int] = set()
        for first in [variable for variable, _, _ in self._free.values()]:
            if id(first) in seen:
                continue
            seen.add(id(first))
            component, touched = [first], {}
            for variable in component:
                for casts, _ in self._around[id(variable)]:
                    if id(casts) in touched:
                        continue
                    touched[id(casts)] = casts
                    fresh = [other for other in beside[id(casts)] if id(other) not in seen]
                    seen.update(map(id, fresh))
                    component.extend(fresh)
            self._reconsider_component(component, list(touched.values()))

    def _reconsider_component(self, component: list[FormatVariable], values: list[_CastCount]) -> None:
        casts_low = sum(casts.number() for casts in values)
        for variable in component:
            self._choose(variable, high=True)
        saved = casts_low - sum(casts.number() for casts in values)
        for variable in component:
            if saved <= 0:
                self._choose(variable, high=False)
                continue
            _, low, _ = self._free.pop(id(variable))
            variable.because = tuple(_alike(variable, self._around[id(variable)]))[:8]
            among = f"{len(component)} connected nodes" if len(component) > 1 else "it"
            variable.why = f"{variable.format}: {low.nominal} for {among} would take {_more_joins(saved)}"

    def _reconsider(self, variable: FormatVariable) -> list[FormatVariable]:
        """Raise `variable` if that saves casts; return the variables to revisit."""
        around = self._around[id(variable)]
        before, casts_low = [casts.state() for casts, _ in around], sum(casts.number() for casts, _ in around)
        self._choose(variable, high=True)
        casts_high = sum(casts.number() for casts, _ in around)
        if casts_high >= casts_low:
            self._choose(variable, high=False)
            return []
        _, low, _ = self._free.pop(id(variable))
        variable.because = tuple(_alike(variable, around))[:8]
        variable.why = f"{variable.format}: {low.nominal} here would take {_more_joins(casts_low - casts_high)}"
        changed = [casts for (casts, _), state in zip(around, before, strict=True) if casts.state() != state]
        return [other for casts in changed for other in _ends(casts.chain)]

    def _choose(self, variable: FormatVariable, high: bool) -> None:
        """Give a candidate its highest or its lowest choice."""
        _, lowest, highest = self._free[id(variable)]
        before, after = variable.chosen, highest if high else lowest
        for casts, read_at in self._around[id(variable)]:
            for port in read_at:
                casts.readings[casts.reading(variable, port, before)] -= 1
                casts.readings[casts.reading(variable, port, after)] += 1
        variable.chosen = after


def _ends(chain: DefUseChain) -> list[FormatVariable]:
    """Return the producer and the readers of a value, each once."""
    ends = [chain.producer, *chain.readers] if chain.producer else chain.readers
    return list({id(variable): variable for variable in ends}.values())


def _alike(variable: FormatVariable, around: list[_Around]) -> dict[Any, None]:
    """Return the neighbors of `variable` with the same format: they share a value with it."""
    found: dict[Any, None] = {}
    for casts, _ in around:
        for other in (casts.chain.producer, *casts.chain.readers[:8]):
            if other is not None and other is not variable and other.format is variable.format:
                found[other.node] = None
    return found


def _more_joins(joins: int) -> str:
    return "one more join" if joins == 1 else f"{joins} more joins"
