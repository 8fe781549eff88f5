"""The `min-cut` solver: the cheapest assignment of types that the hard constraints allow.

A variable with a choice is a vertex of an energy, low or high. A value is converted to a type once for all readers of
that type, and a weight has one version per type. An auxiliary vertex stands for each such shared need: it is low (or
high) if any of the readers is. These are the label costs of Delong, Osokin, Isack and Boykov, "Fast approximate energy
minimization with label costs", 2012; with two labels they are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.formats import FLOAT32

from dovetail_precision.constraints import choices
from dovetail_precision.costs import CostModel, MovedBytes
from dovetail_precision.def_use import DefUseChain, def_use_chains
from dovetail_precision.solvers.energy import INF, Energy

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["solve_min_cut"]


def solve_min_cut(problem: TypingProblem, costs: CostModel | None = None) -> None:
    """Choose types for all variables of `problem` that minimise `cost_of(problem, costs)`; ties go high.

    Raises:
        DovetailError: The cost model gives invalid costs, or SciPy is missing.
    """
    chains = def_use_chains(problem)
    builder = _Builder(problem, chains, costs or MovedBytes(problem.cost_table, problem.trip_counts))
    for chain in chains:
        builder.add(chain)
    low = builder.energy.minimise()
    for variable in problem.variables:
        vertex = builder.vertices.get(id(variable))
        variable.chosen = builder.types[id(variable)][0 if vertex is not None and low[vertex] else 1]
    for chain in chains:
        chain.type_cast_readers()
        chain.adopt_type_of_readers()
    _explain(problem, chains, builder.vertices)


class _Builder:
    """Builds the energy of a problem.

    Attributes:
        types: The low and the high type of each variable, by its id.
        vertices: The vertex of each variable with a choice, by its id.
    """

    def __init__(self, problem: TypingProblem, chains: list[DefUseChain], costs: CostModel):
        self.energy = Energy()
        self.types = {id(variable): choices(problem, variable) for variable in problem.variables}
        self.vertices: dict[int, int] = {}
        self._costs = costs
        cast_readers = {id(variable) for chain in chains for variable in chain.cast_readers}
        for variable in problem.variables:
            low, high = self.types[id(variable)]
            if low != high and id(variable) not in cast_readers:
                self.vertices[id(variable)] = self.energy.add(self._gain(variable, low, high))

    def add(self, chain: DefUseChain) -> None:
        """Add the costs of converting the value of `chain`, or of storing the versions of its weight."""
        producer = self.vertices.get(id(chain.producer))
        if chain.cast_readers and producer is not None:
            types = self.types[id(chain.producer)]
            self.energy.bias[producer] += sum(self._gain(follower, *types) for follower in chain.cast_readers)
        if chain.follows and self._add_following(chain):
            return
        always = {chain.present} if chain.kept else set()
        when_low: dict[Format, list[int]] = {}
        when_high: list[int] = []
        for reader in {id(variable): variable for variable in chain.readers}.values():
            low, high = self.types[id(reader)]
            vertex = self.vertices.get(id(reader))
            if vertex is None:
                always.add(high)
            else:
                when_low.setdefault(low, []).append(vertex)
                when_high.append(vertex)
        for kind in sorted(always | when_low.keys() | ({FLOAT32} if when_high else set()), key=str):
            self._add_need(chain, kind, kind in always, when_low.get(kind, ()), when_high if kind is FLOAT32 else ())

    def _add_following(self, chain: DefUseChain) -> bool:
        """Add a value that follows its readers; return whether it can."""
        low, high = chain.follows, chain.present
        readers = {id(variable) for variable in chain.readers}
        fixed = {self.types[key][1] for key in readers - self.vertices.keys()}
        free = sorted(self.vertices[key] for key in readers & self.vertices.keys())
        if high in fixed or not free:
            return high not in fixed
        join, some_high = self._join(chain, high, low), self._need(free, low=False)
        gain = self._gain(chain.producer, low, high) if chain.producer else 0
        self.energy.bias[some_high] += gain + (join if fixed else 0)
        if not fixed and len(free) > 1:
            self._add_pairwise(self._need(free, low=True), some_high, join)
        return True

    def _gain(self, variable: Variable, low: Format, high: Format) -> int:
        """Return the time that computing in the low type saves."""
        return _price(self._costs.compute(variable, high)) - _price(self._costs.compute(variable, low))

    def _add_need(self, chain: DefUseChain, kind: Format, always: bool, when_low, when_high) -> None:
        """Add the cost of `chain` in type `kind`, needed if any of `when_low` is low or any of `when_high` is high."""
        producer = self.vertices.get(id(chain.producer))
        if always and producer is None:
            return  # a constant cost
        from_low, from_high = self._prices(chain, kind)
        if always:
            self.energy.bias[producer] += from_high - from_low
        elif when_low:
            need = self._need(when_low, low=True)
            self.energy.bias[need] -= from_low
            self._add_pairwise(need, producer, from_high - from_low)
        else:
            need = self._need(when_high, low=False)
            self.energy.bias[need] += from_high
            self._add_pairwise(producer, need, from_low - from_high)

    def _prices(self, chain: DefUseChain, kind: Format) -> tuple[int, int]:
        """Return the cost of `chain` in type `kind` with a low and with a high producer."""
        if chain.constant:
            return (_price(self._costs.version(chain.value, kind)),) * 2
        if id(chain.producer) in self.vertices:
            low, high = self.types[id(chain.producer)]
            return self._join(chain, low, kind), self._join(chain, high, kind)
        held = self.types[id(chain.producer)][1] if chain.producer else chain.present
        return (self._join(chain, held, kind),) * 2

    def _join(self, chain: DefUseChain, held: Format, kind: Format) -> int:
        return _price(self._costs.join(chain.value, held, kind)) if held != kind else 0

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
        if cost:
            self.energy.add_pairwise(low, high, cost)


def _price(cost: int) -> int:
    if not isinstance(cost, int) or cost < 0:
        raise DovetailError(f"the cost model returned {cost!r}", "costs must be non-negative integers")
    return cost


def _explain(problem: TypingProblem, chains: list[DefUseChain], free: dict[int, int]) -> None:
    """Record the neighbours of the same type as the reason of each free variable."""
    beside: dict[int, list[ir.Node]] = {key: [] for key in free}

    def note(variable: Variable | None, other: Variable | None) -> None:
        if variable and other and id(variable) in beside and variable.chosen == other.chosen:
            beside[id(variable)].append(other.node)

    for chain in chains:
        if not chain.constant:
            for reader in chain.readers:
                note(reader, chain.producer)
                note(chain.producer, reader)
    for variable in problem.variables:
        if id(variable) in beside:
            variable.because = tuple(dict.fromkeys(beside[id(variable)]))[:8]
            variable.why = f"{variable.chosen}, the cheapest type given its neighbours"
