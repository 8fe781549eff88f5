"""The exact minimum where every variable has a low choice and float32, or no choice.

A variable with a choice is a vertex of an energy, low or high. A value is converted to a format once for all readers of
that format, and a weight has one version per format. An auxiliary vertex stands for each such shared need: it is low
(or high) if any of the readers is. These are the label costs of Delong, Osokin, Isack and Boykov, "Fast approximate
energy minimization with label costs", 2012; with two labels they are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.formats import FLOAT32, Format

from dovetail_precision.choices import uniform
from dovetail_precision.solvers.energy import INF, Energy

if TYPE_CHECKING:
    from dovetail_precision.choices import Choice, SharedFormat
    from dovetail_precision.def_use import DefUseChain
    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.solvers.prices import Prices
    from dovetail_precision.variable import Variable


def minimise_two_choices(
    problem: TypingProblem,
    chains: Iterable[DefUseChain],
    known: Mapping[int, tuple[Choice, ...]],
    free: Mapping[int, Variable],
    prices: Prices,
) -> None:
    """Make the cheapest choices for all variables of `problem`; ties go high.

    Args:
        problem: The problem.
        chains: Its def-use chains.
        known: The candidates of each variable, by its id.
        free: The variables with a choice, by id; their candidates are a low choice and float32.
        prices: The prices.

    Raises:
        DovetailError: The cost model gives invalid costs, or SciPy is missing.
    """
    builder = _Builder(known, free, prices)
    for chain in chains:
        builder.add(chain)
    low = builder.energy.minimise()
    for variable in problem.variables:
        vertex = builder.vertices.get(id(variable))
        found = known[id(variable)]
        variable.chosen = found[0] if vertex is not None and low[vertex] else found[-1]


class _Builder:
    """Builds the energy of a problem.

    Attributes:
        vertices: The vertex of each variable with a choice, by its id.
    """

    def __init__(self, known: Mapping[int, tuple[Choice, ...]], free: Mapping[int, Variable], prices: Prices):
        self.energy = Energy()
        self._known = known
        self._prices = prices
        self.vertices = {key: self.energy.add(prices.gain(variable, *known[key])) for key, variable in free.items()}

    def add(self, chain: DefUseChain) -> None:
        """Add the costs of converting the value of `chain`, or of storing the versions of its weight."""
        producer = self.vertices.get(id(chain.producer))
        if chain.cast_readers and producer is not None:
            self.energy.bias[producer] += sum(
                self._prices.gain(follower, *(uniform(held) for held in self._held(chain)))
                for follower in chain.cast_readers
            )
        if chain.follows and self._add_following(chain, chain.follows):
            return
        always: set[Format | SharedFormat] = {chain.present} if chain.kept else set()
        when_low: dict[Format | SharedFormat, list[int]] = {}
        when_high: list[int] = []
        for key, low, high in dict.fromkeys(self._read(variable, port) for variable, port in chain.uses):
            vertex = self.vertices.get(key)
            if vertex is None or low is high:
                always.add(high)
            else:
                when_low.setdefault(low, []).append(vertex)
                when_high.append(vertex)
        for kind in sorted(always | when_low.keys() | ({FLOAT32} if when_high else set()), key=str):
            self._add_need(chain, kind, kind in always, when_low.get(kind, ()), when_high if kind is FLOAT32 else ())

    def _add_following(self, chain: DefUseChain, low: Format) -> bool:
        """Add a value that follows its readers; return whether it can."""
        high = chain.present
        readers = {id(variable): port for variable, port in chain.uses}
        fixed = {self._known[key][-1].format_of(port) for key, port in readers.items() if key not in self.vertices}
        free = sorted(self.vertices[key] for key in readers.keys() & self.vertices.keys())
        if high in fixed or not free:
            return high not in fixed
        join, some_high = self._prices.join(chain, high, low), self._need(free, low=False)
        gain = self._prices.gain(chain.producer, uniform(low), uniform(high)) if chain.producer else 0
        self.energy.bias[some_high] += gain + (join if fixed else 0)
        if not fixed and len(free) > 1:
            self._add_pairwise(self._need(free, low=True), some_high, join)
        return True

    def _add_need(self, chain: DefUseChain, kind: Format | SharedFormat, always: bool, when_low, when_high) -> None:
        """Add the cost of `chain` in format `kind`, needed if any of `when_low` is low or of `when_high` is high."""
        producer = self.vertices.get(id(chain.producer))
        if always and producer is None:
            return  # a constant cost
        if chain.constant:
            from_low = from_high = self._prices.version(chain, kind)
        else:
            from_low, from_high = (self._prices.join(chain, held, kind) for held in self._held(chain))
        if always and producer is not None:
            self.energy.bias[producer] += from_high - from_low
        elif when_low:
            need = self._need(when_low, low=True)
            self.energy.bias[need] -= from_low
            self._add_pairwise(need, producer, from_high - from_low)
        else:
            need = self._need(when_high, low=False)
            self.energy.bias[need] += from_high
            self._add_pairwise(producer, need, from_low - from_high)

    def _read(self, variable: Variable, port: str) -> tuple[int, Format | SharedFormat, Format | SharedFormat]:
        """Return the id of a reader, with what it reads at `port` if it is low and if it is high."""
        found = self._known[id(variable)]
        return id(variable), variable.held_at(port, found[0]), variable.held_at(port, found[-1])

    def _held(self, chain: DefUseChain) -> tuple[Format | SharedFormat, Format | SharedFormat]:
        """Return what the value is held as with a low and with a high producer."""
        if chain.producer is None:
            return chain.present, chain.present
        found = self._known[id(chain.producer)]
        low, high = found[0 if id(chain.producer) in self.vertices else -1], found[-1]
        producer, port = chain.producer, chain.produced_at
        return producer.held_at(port, low), producer.held_at(port, high)

    def _need(self, vertices: list[int], low: bool) -> int:
        """Return a vertex that is low if any of `vertices` is (or high, if `low` is false)."""
        if len(vertices) == 1:
            return vertices[0]
        need = self.energy.add()
        for vertex in vertices:
            self.energy.add_pairwise(*((vertex, need) if low else (need, vertex)), INF)
        return need

    def _add_pairwise(self, low: int | None, high: int | None, cost: int) -> None:
        if cost < 0:
            raise DovetailError("the cost model prices a join from a narrow type above one from a wide type")
        if cost and low is not None and high is not None:
            self.energy.add_pairwise(low, high, cost)
