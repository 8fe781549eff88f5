"""Groups of nodes and the noise that each makes, split further where that is worth a run.

The noise of a group is measured with the group kept low and everything else high. Noise is small then, and so its
energies add up; of a result that is already far from its original, parts of the noise hide each other, and raising one
of its causes may even make it worse.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir import all_nodes, body_nodes, name_of
from dovetail.planning import get_placement, operator_name, parse_pin, select

from dovetail_verify.accuracy.trials import BROKEN, Noise

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.compiler import CompiledModel
    from dovetail.ir import Model
    from dovetail.passes import Request

    from dovetail_verify.accuracy.streamed import Streamed
    from dovetail_verify.accuracy.trials import Trials


_CLEAR = 0.3  # share of a measurement below which a difference is taken for chance
_TRUSTED = 2  # differences of differences; a group is measured before a third is made


@dataclass(eq=False)
class Group:
    """Units that follow each other in the graph.

    Attributes:
        units: The units.
        noise: The noise that they make.
        derived: 0 if it was measured; else how many differences it is away from a measurement.
        work: What they compute together.
        border: What a conversion behind them costs, in the same measure.
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
        """Where it can be split: before every unit that does not follow another."""
        return [index for index, unit in enumerate(self.units) if index and not unit.follows]

    @property
    def names(self) -> list[str]:
        """The names of its units."""
        return [unit.name for unit in self.units]

    def worst(self, targets: Noise) -> float:
        """Its noise at the output where it weighs most, as a share of what is allowed there."""
        return max((value / max(targets.get(name, 1.0), 1 / BROKEN) for name, value in self.noise.items()), default=0.0)


class Groups:
    """The groups of one request.

    Args:
        trials: Runs trials.
        raisable: Names of all nodes that may be raised.
        units: Those that are low unless they are raised, in graph order.
        prior: A guess at the noise of a unit, by name; decides only which half is measured first.

    Attributes:
        base: The noise with nothing raised.
        floor: The noise with everything raised.
        groups: In graph order; together they hold all units.
    """

    def __init__(
        self, trials: Trials, raisable: Collection[str], units: Sequence[Unit], prior: Mapping[str, float] | None = None
    ):
        self._trials = trials
        self._raisable = frozenset(raisable)
        self._prior = prior or {}
        self.base = trials.measure(()).noise
        self.floor = trials.measure(self._raisable).noise
        self.groups = [Group(units, self._above_floor(self.base))] if units else []

    def total(self) -> Noise:
        """The noise of all groups together, if it adds up."""
        return self.rest(())

    def rest(self, raised: Collection[Group]) -> Noise:
        """The noise that is left with some groups raised, if it adds up."""
        kept = set(raised)
        low = [group for group in self.groups if group not in kept]
        return {
            name: min(BROKEN, floor + sum(group.noise.get(name, 0.0) for group in low))
            for name, floor in self.floor.items()
        }

    def limits(self, allowed: Noise, scale: float) -> Noise:
        """What may be left of the noise that groups make alone, where that much is allowed of the result.

        Noise of several groups may cancel, and answers that change hide it: of what groups make alone there may be
        more, as much as there is more of it with nothing raised.
        """
        total = self.total()
        return {
            kind: min(BROKEN, value * scale * max(1.0, total[kind] / max(self.base[kind], 1 / BROKEN)))
            for kind, value in allowed.items()
        }

    def refine(self, choose: Callable[[list[Group]], Group | None], runs: int) -> None:
        """Split groups while there is one worth it.

        Args:
            choose: Chooses the next one, or None to end.
            runs: How many runs of the trials there may be, with those that there were.
        """
        while self._trials.runs < runs:
            group = choose(self.groups)
            if group is None:
                return
            if group.derived > _TRUSTED or group.derived and not group.cuts:
                self.measure(group)
            elif group.cuts:
                self._split(group)
            else:
                return

    def measure_doubtful(self, low: Collection[Group], most: int) -> bool:
        """Measure groups of which little is known, because what they were derived from hides them.

        Args:
            low: The groups to look at.
            most: How many to measure; those with the most units come first.

        Returns:
            Whether there were any.
        """
        doubtful = sorted((group for group in low if group.derived), key=lambda group: -len(group.units))[:most]
        for group in doubtful:
            self.measure(group)
        return bool(doubtful)

    def measure(self, group: Group) -> None:
        """Measure what was only derived."""
        if group.derived:
            group.noise, group.derived = self._measured(group.units), 0

    def _split(self, group: Group) -> None:
        middle = group.cuts[len(group.cuts) // 2]
        halves = [group.units[:middle], group.units[middle:]]
        first = 0 if self._expected(halves[0]) >= self._expected(halves[1]) else 1
        measured = self._measured(halves[first])
        rest = {kind: _rest(value, measured.get(kind, 0.0)) for kind, value in group.noise.items()}
        # What is broken twice is no less broken without one of both.
        hidden = any(value >= BROKEN <= measured.get(name, 0.0) for name, value in group.noise.items())
        parts = [Group(halves[first], measured), Group(halves[1 - first], rest, group.derived + 1)]
        if hidden:
            parts[1] = Group(halves[1 - first], self._measured(halves[1 - first]))
        position = self.groups.index(group)
        self.groups[position : position + 1] = parts if first == 0 else parts[::-1]

    def _measured(self, units: Sequence[Unit]) -> Noise:
        names = {unit.name for unit in units}
        return self._above_floor(self._trials.measure(self._raisable - names, names).noise)

    def _above_floor(self, noise: Noise) -> Noise:
        return {
            name: value if value >= BROKEN else max(value - self.floor.get(name, 0.0), 0.0)
            for name, value in noise.items()
        }

    def _expected(self, units: Sequence[Unit]) -> float:
        return sum(self._prior.get(unit.name, 0.0) for unit in units)


def _rest(whole: float, part: float) -> float:
    """What is left of a noise without a part of it, where the difference tells; else nothing, until it is measured."""
    return whole - part if whole - part > _CLEAR * whole else 0.0


Shapes = Mapping[str, tuple[int, ...]]
_OPEN = 64  # an extent that is not known
_UNKNOWN = 4096  # elements of a value whose rank is not known
_MOVED = 16  # multiply-adds in the time that one element is read or written

_CONVERTED = 64  # multiply-adds in the time that one element is converted, and fusions across the conversion are lost
_STARTED = 1e5  # multiply-adds in the time that an operator takes to start


def border_of(node: ir.Node, shapes: Shapes) -> float:
    """What a conversion behind `node` costs, in multiply-adds."""
    return _STARTED + _CONVERTED * sum(_elements(value, shapes) for value in node.outputs if value is not None)


def work_of(node: ir.Node, shapes: Shapes) -> float:
    """Multiply-adds, with those that could be done while its values are read and written.

    What multiplies and sums is told from shapes: an operand of two axes or more that does not broadcast to the result
    is summed over. That holds for products and convolutions whatever their operators are called.

    Args:
        node: The node.
        shapes: Shapes that were seen, by the name of the value; what is not there has its static shape.
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


@dataclass(frozen=True, slots=True)
class Unit:
    """A node that may be raised; one that holds bodies stands for all that is in them.

    Attributes:
        name: Its name.
        operator: Its operator, as selectors write it.
        work: How much it computes, relative to other units.
        border: What converting its results costs, in the same measure.
        follows: It rounds nothing that is not rounded before it, so it stays with the unit in front of it.
    """

    name: str
    operator: str
    work: float
    border: float
    follows: bool = False


def locked_nodes(model: Model, request: Request) -> dict[str, str]:
    """The nodes of the main graph that no goal may raise, by name, with what keeps them as they are.

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
    for text, selector in lists:
        for node in select(model, selector):
            found.setdefault(holders.get(id(node), name_of(node)), text)
    return found


class Candidates:
    """What may be raised of a request.

    Args:
        low: The request, compiled as it is.
        locked: Nodes that may not be raised.

    Attributes:
        names: The nodes of the main graph that the plan knows and nothing locks; conversions are not in it.
    """

    def __init__(self, low: CompiledModel, locked: Mapping[str, str]):
        planned = {node.name for node in low.plan.nodes}
        self._low = {
            node.name: _types(node) for node in low.model.graph if node.name in planned and node.name not in locked
        }
        self.names = list(self._low)

    def units(self, high: CompiledModel, looked: Streamed) -> list[Unit]:
        """The nodes that have other types where all are raised, in graph order.

        Args:
            high: The request with all raised.
            looked: What a streamed run found.
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
            for node in high.model.graph
            if node.name in self._low and _types(node) != self._low[node.name]
        ]


def _types(node: ir.Node) -> tuple[object, ...]:
    placements = map(get_placement, all_nodes([node]))
    return tuple((p.precision, *sorted(p.ports.items())) for p in placements if p is not None)
