"""Groups of nodes and the noise that each causes, split further where that is worth a run.

The noise of a group is measured with the group low and everything else high. Such noise is small, so energies add up.
In a result far from its original, noise components mask each other, and raising one of the causes may even increase the
error.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import all_nodes, body_nodes, name_of
from dovetail.planning import get_placement, operator_name, parse_pin, select
from dovetail_runtime.nested_graphs import with_nodes

from dovetail_verify.accuracy.trials import BROKEN, Noise

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel, Steps

    from dovetail_verify.accuracy.streamed import Streamed
    from dovetail_verify.accuracy.trials import AccuracyTrial, AccuracyTrials


_CLEAR = 0.3  # fraction of a measurement below which a difference counts as chance
_TRUSTED = 2  # nested differences; a group is measured before a third is taken


@dataclass(eq=False)
class UnitGroup:
    """Consecutive units of the graph.

    Attributes:
        units: The units.
        noise: The noise that they cause.
        derived: 0 if the noise was measured; else the number of differences between it and a measurement.
        work: Total cost of the units.
        border: Cost of a conversion after them, in the same unit.
    """

    units: Sequence[Unit]
    noise: Noise
    derived: int = 0
    work: float = field(init=False)
    border: float = field(init=False)

    def __post_init__(self) -> None:
        self.work = sum(unit.work for unit in self.units)
        self.border = self.units[-1].border

    @property
    def cuts(self) -> list[int]:
        """Indices at which the group can be split: before every unit that does not follow its predecessor."""
        return [index for index, unit in enumerate(self.units) if index and not unit.follows]

    @property
    def names(self) -> list[str]:
        """Names of the units."""
        return [unit.name for unit in self.units]

    def worst(self, targets: Noise) -> float:
        """Return the noise at the worst output, relative to the allowed noise there."""
        return max((value / max(targets.get(name, 1.0), 1 / BROKEN) for name, value in self.noise.items()), default=0.0)


class Groups:
    """Groups of the units of one request.

    Args:
        trials: Proposes trials.
        raisable: Names of all nodes that may be raised.
        units: Units that are low unless raised, in graph order.
        low: The trial with nothing raised.
        high: The trial with everything raised.
        prior: Estimated noise of units by name; only decides which half is measured first.

    Attributes:
        base: The noise with nothing raised.
        floor: The noise with everything raised.
        groups: The groups in graph order, which partition the units.
    """

    def __init__(
        self,
        trials: AccuracyTrials,
        raisable: Collection[str],
        units: Sequence[Unit],
        low: AccuracyTrial,
        high: AccuracyTrial,
        prior: Mapping[str, float] | None = None,
    ):
        self._trials = trials
        self._raisable = frozenset(raisable)
        self._prior = prior or {}
        self.base, self.floor = low.noise, high.noise
        self.groups = [UnitGroup(units, self._above_floor(self.base))] if units else []

    def total(self) -> Noise:
        """Return the noise of all groups together, assuming that it adds up."""
        return self.rest(())

    def rest(self, raised: Collection[UnitGroup]) -> Noise:
        """Return the noise that remains with some groups raised, assuming that it adds up."""
        kept = set(raised)
        low = [group for group in self.groups if group not in kept]
        return {
            name: min(BROKEN, floor + sum(group.noise.get(name, 0.0) for group in low))
            for name, floor in self.floor.items()
        }

    def limits(self, allowed: Noise, scale: float) -> Noise:
        """Scale the allowed noise of a result to the sum of noises that groups cause alone.

        Noise of several groups may cancel, and changed answers hide it. Hence the sum may exceed the allowed noise by
        the ratio of sum to total noise with nothing raised.
        """
        total = self.total()
        return {
            kind: min(BROKEN, value * scale * max(1.0, total[kind] / max(self.base[kind], 1 / BROKEN)))
            for kind, value in allowed.items()
        }

    def refine(self, choose: Callable[[list[UnitGroup]], UnitGroup | None], runs: int) -> Steps[None]:
        """Split groups as long as `choose` returns one.

        Args:
            choose: Chooses the next group, or None to stop.
            runs: Maximum total number of runs of the trials.
        """
        while self._trials.runs < runs:
            group = choose(self.groups)
            if group is None:
                return
            if group.derived > _TRUSTED or group.derived and not group.cuts:
                yield from self.measure(group)
            elif group.cuts:
                yield from self._split(group)
            else:
                return

    def measure_doubtful(self, low: Collection[UnitGroup], most: int) -> Steps[bool]:
        """Measure groups whose noise is only derived, because the measurements may mask it.

        Args:
            low: The groups to consider.
            most: Maximum number to measure, largest groups first.

        Returns:
            Whether any group was measured.
        """
        doubtful = sorted((group for group in low if group.derived), key=lambda group: -len(group.units))[:most]
        for group in doubtful:
            yield from self.measure(group)
        return bool(doubtful)

    def measure(self, group: UnitGroup) -> Steps[None]:
        """Measure the noise of a group if it is only derived."""
        if group.derived:
            group.noise, group.derived = (yield from self._measured(group.units)), 0

    def _split(self, group: UnitGroup) -> Steps[None]:
        middle = group.cuts[len(group.cuts) // 2]
        halves = [group.units[:middle], group.units[middle:]]
        first = 0 if self._expected(halves[0]) >= self._expected(halves[1]) else 1
        measured = yield from self._measured(halves[first])
        rest = {kind: _rest(value, measured.get(kind, 0.0)) for kind, value in group.noise.items()}
        # If the whole and one part are both broken, nothing is known about the other part.
        hidden = any(value >= BROKEN <= measured.get(name, 0.0) for name, value in group.noise.items())
        parts = [UnitGroup(halves[first], measured), UnitGroup(halves[1 - first], rest, group.derived + 1)]
        if hidden:
            parts[1] = UnitGroup(halves[1 - first], (yield from self._measured(halves[1 - first])))
        position = self.groups.index(group)
        self.groups[position : position + 1] = parts if first == 0 else parts[::-1]

    def _measured(self, units: Sequence[Unit]) -> Steps[Noise]:
        names = {unit.name for unit in units}
        many = f"{len(units)} nodes from '{units[0].name}' on" if len(units) > 1 else f"'{units[0].name}'"
        why = f"the noise of {many}, with all others raised"
        trial = yield from self._trials.measure(self._raisable - names, names, why)
        return self._above_floor(trial.noise)

    def _above_floor(self, noise: Noise) -> Noise:
        return {
            name: value if value >= BROKEN else max(value - self.floor.get(name, 0.0), 0.0)
            for name, value in noise.items()
        }

    def _expected(self, units: Sequence[Unit]) -> float:
        return sum(self._prior.get(unit.name, 0.0) for unit in units)


def _rest(whole: float, part: float) -> float:
    """Return the noise of a whole without a part if the difference is significant; else zero, until it is measured."""
    return whole - part if whole - part > _CLEAR * whole else 0.0


Shapes = Mapping[str, tuple[int, ...]]
_OPEN = 64  # assumed extent if unknown
_UNKNOWN = 4096  # assumed number of elements of a value of unknown rank
_MOVED = 16  # multiply-adds in the time of reading or writing one element

_CONVERTED = 64  # multiply-adds in the time of converting one element, including lost fusions
_STARTED = 1e5  # multiply-adds in the time of starting an operator


def border_of(node: ir.Node, shapes: Shapes) -> float:
    """Return the cost of a conversion after `node`, in multiply-adds."""
    return _STARTED + _CONVERTED * sum(_elements(value, shapes) for value in node.outputs if value is not None)


def work_of(node: ir.Node, shapes: Shapes) -> float:
    """Return the cost of a node in multiply-adds, including the time for reading and writing its values.

    Contractions are recognized by shape: an operand of rank 2 or more that does not broadcast to the result is summed
    over. This covers products and convolutions of any operator name.

    Args:
        node: The node.
        shapes: Observed shapes by value name; other values have their static shape.
    """
    operands = [value for value in node.inputs if value is not None]
    results = [value for value in node.outputs if value is not None]
    moved = sum(_elements(value, shapes) for value in (*operands, *results))
    if not results:
        return float(moved)
    result = _extents(results[0], shapes)
    summed = 1.0
    for value in operands:
        extents = _extents(value, shapes)
        if len(extents) > 1 and value.is_initializer() and not _broadcasts(extents, result):
            shared = max((extent for extent in extents if extent in result), default=1)
            summed = max(summed, math.prod(extents) / shared)
    if summed == 1.0 and len(operands) > 1 and len(result) > 1:
        first, second = (_extents(value, shapes) for value in operands[:2])
        if min(len(first), len(second)) > 1 and not (_broadcasts(first, result) and _broadcasts(second, result)):
            summed = math.sqrt(math.prod(first) * math.prod(second) / max(math.prod(result), 1))
    return math.prod(result) * (summed if summed > 1 else 0) + _MOVED * moved


def _extents(value: ir.Value, shapes: Shapes) -> list[int]:
    known = shapes.get(name_of(value))
    if known is not None:
        return list(known)
    if value.shape is None:
        return [_UNKNOWN]
    return [extent if isinstance(extent, int) and extent >= 0 else _OPEN for extent in value.shape.dims]


def _elements(value: ir.Value, shapes: Shapes) -> int:
    return math.prod(_extents(value, shapes))


def _broadcasts(extents: list[int], result: list[int]) -> bool:
    if len(extents) > len(result):
        return False
    return all(a in (1, b) for a, b in zip(reversed(extents), reversed(result)))


class Unit(NamedTuple):
    """A node that may be raised, together with its bodies.

    Attributes:
        name: Its name.
        operator: Its operator, as selectors write it.
        work: Its cost, relative to other units.
        border: Cost of converting its results, in the same unit.
        follows: Whether it adds no rounding of its own, so that it stays with the unit before it.
    """

    name: str
    operator: str
    work: float
    border: float
    follows: bool = False


def locked_nodes(model: Model, request: Request) -> dict[str, str]:
    """Return the nodes of the main graph that no goal may raise, by name, with the reason.

    Raises:
        DovetailError: A selector matches nothing.
    """
    if request.plan is not None:
        return dict.fromkeys(map(name_of, model.graph), "the plan that is replayed")
    found: dict[str, str] = {}
    holders = {id(inner): name_of(node) for node in model.graph for inner in body_nodes(node)}
    lists = [(f"--low {shlex.quote(selector)}", selector) for selector in request.low]
    pins = ((f"--pin {shlex.quote(pin)}", parse_pin(pin)) for pin in request.pins)
    lists += [(text, selector) for text, (selector, _, precision) in pins if precision]
    # Exact names need no walk per selector: there may be one for every node.
    exact: dict[str, list[ir.Node]] = {}
    for node in all_nodes(model.graph) if lists else ():
        exact.setdefault(name_of(node), []).append(node)
    for text, selector in lists:
        for node in exact.get(selector) or select(model, selector):
            found.setdefault(holders.get(id(node), name_of(node)), text)
    return found


class RaisableNodes:
    """Nodes of a request that may be raised.

    Args:
        low: The compiled unmodified request.
        locked: Nodes that may not be raised.

    Attributes:
        names: Planned nodes of the main graph that are not locked; conversions are excluded.
    """

    def __init__(self, low: CompiledModel, locked: Mapping[str, str]):
        planned = {node.name for node in low.plan.nodes}
        self._low = {
            node.name: _types(node)
            for node in with_nodes(low).graph
            if node.name in planned and node.name not in locked
        }
        self.names = list(self._low)

    def units(self, high: CompiledModel, looked: Streamed) -> list[Unit]:
        """Return the candidates whose types differ if all are raised, in graph order.

        Args:
            high: The compiled request with all candidates raised.
            looked: The result of a streamed run.
        """
        shapes = looked.shapes
        return [
            Unit(
                node.name,
                operator_name(node.domain, node.op_type),
                work_of(node, shapes),
                border_of(node, shapes),
                node.name in looked.errors and looked.errors[node.name].moves,
            )
            for node in with_nodes(high).graph
            if node.name in self._low and _types(node) != self._low[node.name]
        ]


def _types(node: ir.Node) -> tuple[object, ...]:
    placements = map(get_placement, all_nodes([node]))
    return tuple((p.precision, *sorted(p.ports.items())) for p in placements if p is not None)
