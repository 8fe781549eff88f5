"""The `min-cut` solver: of all plans that the hard rules allow, the one that costs least.

A variable that may choose is a vertex of an energy, low or high. Values equality them together: however many read a value
in one type, it is converted to that type once, and a weight has one version per type. Such a need of several readers
is a vertex by itself, as low (or as high) as any of the readers; these are the label costs of Delong, Osokin, Isack and
Boykov, "Fast approximate energy minimization with label costs", 2012, which two labels make exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

from dovetail_precision.costs import CostModel, MovedBytes
from dovetail_precision.flows import Flow, find_flows
from dovetail_precision.rules import choices
from dovetail_precision.solvers.energy import INF, Energy

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["solve_min_cut"]


def solve_min_cut(problem: TypingProblem, costs: CostModel | None = None) -> None:
    """Choose a type for every variable of `problem` so that `cost_of(problem, costs)` is as small as can be.

    Where both types cost the same, it is the high one.

    Raises:
        DovetailError: The cost model is not one, or SciPy is missing.
    """
    flows = find_flows(problem)
    builder = _Builder(problem, flows, costs or MovedBytes(problem.cost_table, problem.trip_counts))
    for flow in flows:
        builder.add(flow)
    low = builder.energy.minimise()
    for variable in problem.variables:
        vertex = builder.vertices.get(id(variable))
        variable.chosen = builder.types[id(variable)][0 if vertex is not None and low[vertex] else 1]
    for flow in flows:
        flow.lead()
        flow.follow()
    _explain(problem, flows, builder.vertices)


class _Builder:
    """The energy of a problem.

    Attributes:
        types: The low and the high type of each variable, by its id.
        vertices: The vertex of each variable that may choose, by its id.
    """

    def __init__(self, problem: TypingProblem, flows: list[Flow], costs: CostModel):
        self.energy = Energy()
        self.types = {id(variable): choices(problem, variable) for variable in problem.variables}
        self.vertices: dict[int, int] = {}
        self._costs = costs
        followers = {id(variable) for flow in flows for variable in flow.followers}
        for variable in problem.variables:
            low, high = self.types[id(variable)]
            if low != high and id(variable) not in followers:
                self.vertices[id(variable)] = self.energy.add(self._gain(variable, low, high))

    def add(self, flow: Flow) -> None:
        """Add what it costs to convert `flow`, or to have its weight in one type or more."""
        producer = self.vertices.get(id(flow.producer))
        if flow.followers and producer is not None:
            types = self.types[id(flow.producer)]
            self.energy.bias[producer] += sum(self._gain(follower, *types) for follower in flow.followers)
        if flow.follows and self._add_following(flow):
            return
        always = {flow.present} if flow.kept else set()
        when_low: dict[str, list[int]] = {}
        when_high: list[int] = []
        for reader in {id(variable): variable for variable in flow.readers}.values():
            low, high = self.types[id(reader)]
            vertex = self.vertices.get(id(reader))
            if vertex is None:
                always.add(high)
            else:
                when_low.setdefault(low, []).append(vertex)
                when_high.append(vertex)
        for kind in sorted(always | when_low.keys() | ({"float32"} if when_high else set())):
            self._add_need(flow, kind, kind in always, when_low.get(kind, ()), when_high if kind == "float32" else ())

    def _add_following(self, flow: Flow) -> bool:
        """Add a value that is low if all of its readers read it so; whether that is possible."""
        low, high = flow.follows, flow.present
        readers = {id(variable) for variable in flow.readers}
        fixed = {self.types[key][1] for key in readers - self.vertices.keys()}
        free = sorted(self.vertices[key] for key in readers & self.vertices.keys())
        if high in fixed or not free:
            return high not in fixed
        join, some_high = self._join(flow, high, low), self._need(free, low=False)
        gain = self._gain(flow.producer, low, high) if flow.producer else 0
        self.energy.bias[some_high] += gain + (join if fixed else 0)
        if not fixed and len(free) > 1:
            self._differ(self._need(free, low=True), some_high, join)
        return True

    def _gain(self, variable: Variable, low: str, high: str) -> int:
        """How much less computing takes in the low type."""
        return _price(self._costs.compute(variable, high)) - _price(self._costs.compute(variable, low))

    def _add_need(self, flow: Flow, kind: str, always: bool, when_low, when_high) -> None:
        """Add the cost of `flow` in type `kind`, which some vertices need when they are low, or others when high."""
        producer = self.vertices.get(id(flow.producer))
        if always and producer is None:
            return  # paid for whatever anybody chooses
        from_low, from_high = self._prices(flow, kind)
        if always:
            self.energy.bias[producer] += from_high - from_low
        elif when_low:
            need = self._need(when_low, low=True)
            self.energy.bias[need] -= from_low
            self._differ(need, producer, from_high - from_low)
        else:
            need = self._need(when_high, low=False)
            self.energy.bias[need] += from_high
            self._differ(producer, need, from_low - from_high)

    def _prices(self, flow: Flow, kind: str) -> tuple[int, int]:
        """What `flow` in type `kind` costs when its producer is low, and when it is high."""
        if flow.constant:
            return (_price(self._costs.version(flow.value, kind)),) * 2
        if id(flow.producer) in self.vertices:
            low, high = self.types[id(flow.producer)]
            return self._join(flow, low, kind), self._join(flow, high, kind)
        held = self.types[id(flow.producer)][1] if flow.producer else flow.present
        return (self._join(flow, held, kind),) * 2

    def _join(self, flow: Flow, held: str, kind: str) -> int:
        return _price(self._costs.join(flow.value, held, kind)) if held != kind else 0

    def _need(self, vertices: list[int], low: bool) -> int:
        """The vertex that is low when any of `vertices` is (or high, when any of them is)."""
        if len(vertices) == 1:
            return vertices[0]
        need = self.energy.add()
        for vertex in vertices:
            self.energy.differ(*((vertex, need) if low else (need, vertex)), INF)
        return need

    def _differ(self, low: int | None, high: int | None, cost: int) -> None:
        if cost < 0:
            raise DovetailError(
                "the cost model has a join from a narrow type that costs more than one from a wide type"
            )
        if cost:
            self.energy.differ(low, high, cost)


def _price(cost: int) -> int:
    if not isinstance(cost, int) or cost < 0:
        raise DovetailError(f"the cost model gives {cost!r} for a cost", "costs are integers that are not negative")
    return cost


def _explain(problem: TypingProblem, flows: list[Flow], free: dict[int, int]) -> None:
    """Say which neighbours a variable goes along with."""
    beside: dict[int, list[ir.Node]] = {key: [] for key in free}

    def note(variable: Variable | None, other: Variable | None) -> None:
        if variable and other and id(variable) in beside and variable.chosen == other.chosen:
            beside[id(variable)].append(other.node)

    for flow in flows:
        if not flow.constant:
            for reader in flow.readers:
                note(reader, flow.producer)
                note(flow.producer, reader)
    for variable in problem.variables:
        if id(variable) in beside:
            variable.because = tuple(dict.fromkeys(beside[id(variable)]))[:8]
            variable.why = f"{variable.chosen}, the cheapest with what is around it"
