"""The `min-cut` solver: the cheapest choices that the hard constraints allow.

If every variable has a low choice and float32, or no choice, the minimum is found exactly: see `two_choices.py`.
Otherwise the cheapest of `forward`, `fixpoint` and everything high is improved by expansion moves; choices of the
others, and of everything low after the same moves, are adopted if they lower its cost: see `expansion.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir import FLOAT32, Format

from dovetail_precision.choices import FormatChoice, uniform
from dovetail_precision.constraints import candidates
from dovetail_precision.costs import CostModel, Prices, cost_of
from dovetail_precision.def_use import DefUseChain, def_use_chains
from dovetail_precision.solvers.energy import INF, Energy
from dovetail_precision.solvers.expansion import Expansion
from dovetail_precision.solvers.fixpoint import solve_fixpoint
from dovetail_precision.solvers.forward import solve_forward

if TYPE_CHECKING:
    from dovetail_precision.choices import SharedFormat
    from dovetail_precision.problem import FormatVariable, TypingProblem


def minimize_two_choices(
    problem: TypingProblem,
    chains: Iterable[DefUseChain],
    known: Mapping[int, tuple[FormatChoice, ...]],
    free: Mapping[int, FormatVariable],
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
    low = builder.energy.minimize()
    for variable in problem.variables:
        vertex = builder.vertices.get(id(variable))
        found = known[id(variable)]
        variable.chosen = found[0] if vertex is not None and low[vertex] else found[-1]


class _Builder:
    """Builds the energy of a problem.

    Attributes:
        vertices: The vertex of each variable with a choice, by its id.
    """

    def __init__(
        self, known: Mapping[int, tuple[FormatChoice, ...]], free: Mapping[int, FormatVariable], prices: Prices
    ):
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

    def _read(self, variable: FormatVariable, port: str) -> tuple[int, Format | SharedFormat, Format | SharedFormat]:
        """Return the id of a reader, with the forms it reads at `port` if it is low and if it is high."""
        found = self._known[id(variable)]
        return id(variable), variable.held_at(port, found[0]), variable.held_at(port, found[-1])

    def _held(self, chain: DefUseChain) -> tuple[Format | SharedFormat, Format | SharedFormat]:
        """Return the forms of the value with a low and with a high producer."""
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


def solve_min_cut(problem: TypingProblem, costs: CostModel | None = None) -> None:
    """Make choices for all variables of `problem` that minimize `cost_of(problem, costs)`; ties go high.

    With more than two formats to choose from, the result costs no more than those of `forward`, of `fixpoint` and of
    everything high, and is usually the minimum.

    Args:
        problem: The problem.
        costs: The prices; those of the problem if None.

    Raises:
        DovetailError: The cost model gives invalid costs, or SciPy is missing.
    """
    costs = costs or problem.costs
    chains = def_use_chains(problem)
    cast_readers = {id(variable) for chain in chains for variable in chain.cast_readers}
    known = {id(variable): candidates(problem, variable) for variable in problem.variables}
    free = {
        id(variable): variable
        for variable in problem.variables
        if len(known[id(variable)]) > 1 and id(variable) not in cast_readers
    }
    float32 = uniform(FLOAT32)
    if all(len(known[key]) == 2 and known[key][1] is float32 for key in free):
        minimize_two_choices(problem, chains, known, free, Prices(costs))
        _settle(chains)
    else:
        _expand(problem, chains, known, free, costs)
    _explain(problem, chains, free)


def _expand(
    problem: TypingProblem,
    chains: list[DefUseChain],
    known: dict[int, tuple[FormatChoice, ...]],
    free: dict[int, FormatVariable],
    costs: CostModel,
) -> None:
    """Improve the cheapest start, and everything low, by moves; adopt from each the choices that lower the cost."""
    expansion = Expansion(chains, known, free, Prices(costs))
    starts = [_labels(problem, start) for start in (solve_forward, solve_fixpoint, _all(known, -1))]
    found = []
    for labels in (min(starts, key=lambda labels: _cost(problem, labels, costs)), _labels(problem, _all(known, 0))):
        _restore(problem, labels)
        expansion.run()
        _settle(chains)
        found.append(_labels(problem))
    best = min(found, key=lambda labels: _cost(problem, labels, costs))
    _restore(problem, best)
    for labels in (*found, *starts):
        expansion.fuse(labels)
    expansion.run()
    _settle(chains)


def _labels(problem: TypingProblem, solve: Callable[[TypingProblem], None] | None = None) -> dict[int, FormatChoice]:
    """Return the choices, by the id of the variable, that `solve` makes; the present ones without it."""
    if solve is not None:
        before = [(variable.policy, variable.why, variable.because) for variable in problem.variables]
        solve(problem)
        for variable, noted in zip(problem.variables, before, strict=True):
            variable.policy, variable.why, variable.because = noted
    return {id(variable): variable.chosen for variable in problem.variables}


def _restore(problem: TypingProblem, labels: Mapping[int, FormatChoice]) -> None:
    for variable in problem.variables:
        variable.chosen = labels[id(variable)]


def _cost(problem: TypingProblem, labels: Mapping[int, FormatChoice], costs: CostModel) -> int:
    _restore(problem, labels)
    return cost_of(problem, costs)


def _all(known: Mapping[int, tuple[FormatChoice, ...]], index: int) -> Callable[[TypingProblem], None]:
    """Return a solver that takes the first (0) or the last (-1) candidate of every variable."""

    def solve(problem: TypingProblem) -> None:
        for variable in problem.variables:
            variable.chosen = known[id(variable)][index]

    return solve


def _settle(chains: list[DefUseChain]) -> None:
    """Type values that follow their readers or their producer."""
    for chain in chains:
        chain.type_cast_readers()
        chain.adopt_type_of_readers()


def _explain(problem: TypingProblem, chains: list[DefUseChain], free: dict[int, FormatVariable]) -> None:
    """Record the neighbors of the same format as the reason of each free variable."""
    beside: dict[int, list[Any]] = {key: [] for key in free}

    def note(variable: FormatVariable | None, other: FormatVariable | None) -> None:
        if variable and other and id(variable) in beside and variable.format is other.format:
            beside[id(variable)].append(other.node)

    for chain in chains:
        if not chain.constant:
            for reader in chain.readers:
                note(reader, chain.producer)
                note(chain.producer, reader)
    for variable in problem.variables:
        if id(variable) in beside:
            variable.because = tuple(dict.fromkeys(beside[id(variable)]))[:8]
            variable.why = f"{variable.format}, the cheapest type given its neighbors"
