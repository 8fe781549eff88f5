"""The graph of a plan: its nodes with the edges between them, and what the file of the result has for each.

A result has more nodes than its plan: conversions between formats, QuantizeLinear and DequantizeLinear around quantized
values, and arithmetic that stands for one quantized operator. Each of these belongs to a node of the plan or to a
conversion, so that every face counts the same nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from dovetail.planning import PART

from dovetail_commands.plan_graph.result_graph import ResultGraph, type_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.planning import Join, Plan, PlannedNode
    from dovetail.plugin import CompiledModel, Format

_LONGEST = 4  # inserted nodes on an edge that are remembered; chains are rarely longer than two


class ValueSource(NamedTuple):
    """What a value comes from, across nodes that are not in the plan.

    Attributes:
        item: Index of the planned node, or of the input of the model after the last planned node.
        value: Name of the value as in the plan.
        read: The value in the file.
        through: Indices of the nodes of the result in between, from the source on.
    """

    item: int
    value: str
    read: ir.Value
    through: tuple[int, ...] = ()


class DrawnEdge(NamedTuple):
    """An edge between items: planned nodes, inputs, outputs, and conversions.

    Attributes:
        source: Index of the item that computes the value.
        target: Index of the item that reads it.
        value: The value; None for a constant that is converted.
    """

    source: int
    target: int
    value: ir.Value | None


@dataclass
class PlanGraph:
    """The nodes of a plan, and the inputs, outputs and conversions of the model around them.

    Items are numbered through: planned nodes in the order of the plan, then inputs, outputs, and conversions.

    Attributes:
        result: The graph of the result's file.
        nodes: The nodes of the plan.
        inputs: Name and type of each input of the model.
        outputs: Name and type of each output of the model.
        joins: The conversions of the plan.
        home: By node of the result, the item that it belongs to; -1 for calls of functions, which hold others.
        main: By planned node, the node of the result with its name; -1 if the file has none.
        parts: By item, the further nodes of the result that belong to it.
        holder: By planned node in a body, the planned node that holds the body.
        edges: The edges, in the order of their readers.
    """

    result: ResultGraph
    nodes: list[PlannedNode]
    inputs: list[tuple[str, str]] = field(default_factory=list)
    outputs: list[tuple[str, str]] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)
    home: list[int] = field(default_factory=list)
    main: list[int] = field(default_factory=list)
    parts: dict[int, list[int]] = field(default_factory=dict)
    holder: dict[int, int] = field(default_factory=dict)
    edges: list[DrawnEdge] = field(default_factory=list)

    @classmethod
    def of(cls, compiled: CompiledModel, result: ResultGraph) -> PlanGraph:
        """Find the item of every node of the result, and contract its edges to edges between items."""
        plan, graph = compiled.plan, compiled.model.graph
        made = cls(result, plan.nodes, joins=list(plan.joins))
        made.inputs = [(value.name or "", type_of(value)) for value in graph.inputs if not value.is_initializer()]
        made.outputs = [(value.name or "", type_of(value)) for value in graph.outputs]
        made._find_homes(plan)
        _Contraction(made, graph).run()
        return made

    @cached_property
    def main_nodes(self) -> frozenset[int]:
        """The nodes of the result that have the name of a planned node."""
        return frozenset(self.main)

    @property
    def first_input(self) -> int:
        """The index of the first input."""
        return len(self.nodes)

    @property
    def first_output(self) -> int:
        """The index of the first output."""
        return len(self.nodes) + len(self.inputs)

    @property
    def first_join(self) -> int:
        """The index of the first conversion."""
        return len(self.nodes) + len(self.inputs) + len(self.outputs)

    def counts(self) -> dict[str, int]:
        """Return how many nodes and conversions the plan has, and how many further nodes the file has for them."""
        return {
            "nodes": len(self.nodes),
            "conversions": len(self.joins),
            "expanded": sum(map(len, self.parts.values())),
        }

    def region(self, item: int) -> int:
        """Return the index of the region of a planned node in the result; -1 if the file has no such region."""
        if self.main[item] >= 0:
            return self.result.region_of[self.main[item]]
        planned = self.nodes[item]
        return self.result.region_index.get((planned.region, planned.backend), -1)

    def _find_homes(self, plan: Plan) -> None:
        """Match nodes of the result by name with nodes of the plan, and parts with the node that they stand for."""
        waiting: dict[str, list[int]] = {}
        for index, planned in enumerate(plan.nodes):
            waiting.setdefault(planned.name, []).append(index)
        first = {name: found[0] for name, found in waiting.items()}
        for found in waiting.values():
            found.reverse()
        self.main = [-1] * len(plan.nodes)
        self.home = [-1] * len(self.result.nodes)
        for number, node in enumerate(self.result.nodes):
            part = node.metadata_props.get(PART)
            name = node.name or ""
            if part is not None and part in first:
                self.belongs(number, first[part])
            elif part is None and waiting.get(name):
                home = self.home[number] = waiting[name].pop()
                self.main[home] = number

    def belongs(self, number: int, item: int) -> None:
        """Make a node of the result a part of an item."""
        self.home[number] = item
        self.parts.setdefault(item, []).append(number)


class _Contraction:
    """Contracts the edges of a result: nodes that are not in the plan become part of what they are between."""

    def __init__(self, made: PlanGraph, graph: ir.Graph):
        self._made, self._result = made, made.result
        self._graph = graph
        inputs = [value for value in graph.inputs if not value.is_initializer()]
        self._inputs = {id(value): made.first_input + index for index, value in enumerate(inputs)}
        self._joins: dict[str, list[int]] = {}
        for index, join in enumerate(made.joins):
            self._joins.setdefault(join.value, []).append(index)
        self._entered: set[int] = set()
        self._known: dict[int, tuple[ValueSource, ...]] = {}
        self._seen: set[tuple[int, int]] = set()

    def run(self) -> None:
        made, result = self._made, self._result
        for number, top in enumerate(result.holders):
            home = made.home[number]
            if top is not None and home >= 0 and made.home[top] >= 0:
                made.holder[home] = made.home[top]
        for number in range(len(result.nodes)):
            home = made.home[number]
            if home < 0:
                continue  # followed from its readers
            reading = self._reading(home)
            for value in result.reads[number]:
                if not value.is_initializer():
                    self._connect(home, value, reading)
        for index, value in enumerate(self._graph.outputs):
            name = value.name or ""
            self._connect(made.first_output + index, result.resolved(value), (name, frozenset()))
        items: dict[str, int] = {}
        for number, node in enumerate(made.nodes):
            items.setdefault(node.name, number)
        for index, join in enumerate(made.joins):
            if index not in self._entered and join.at in items:
                # What it converts is no node's result, such as a constant.
                self._edge(made.first_join + index, items[join.at], None)

    def _reading(self, item: int) -> tuple[str, frozenset[Format | None]]:
        """Return the name of a reader, and the formats that it reads."""
        node = self._made.nodes[item]
        return node.name, frozenset((node.precision, *node.ports.values()))

    def _connect(self, target: int, value: ir.Value, reading: tuple[str, frozenset[Format | None]]) -> None:
        made = self._made
        for source in self._sources(value):
            if made.holder.get(source.item) == target:
                continue  # the result of a body, which its holder returns
            join = self._join_for(source, reading)
            owner = source.item if source.item < made.first_input else target
            if join is None:
                self._edge(source.item, target, source.read)
            else:
                item = owner = made.first_join + join
                self._entered.add(join)
                self._edge(source.item, item, source.read)
                self._edge(item, target, source.read)
            for number in source.through:
                if made.home[number] < 0:
                    made.belongs(number, owner)
        for number in self._constant(value):
            if made.home[number] < 0:
                made.belongs(number, target)

    def _edge(self, source: int, target: int, value: ir.Value | None) -> None:
        if source != target and (source, target) not in self._seen:
            self._seen.add((source, target))
            self._made.edges.append(DrawnEdge(source, target, value))

    def _join_for(self, source: ValueSource, reading: tuple[str, frozenset[Format | None]]) -> int | None:
        """Return the conversion through which a reader reads a value, or None if it reads the value as it is."""
        name, formats = reading
        for index in self._joins.get(source.value, ()):
            join = self._made.joins[index]
            if join.at == name:
                return index
            if join.wanted in formats and (source.through or join.held not in formats):
                return index
        return None

    def _sources(self, value: ir.Value) -> tuple[ValueSource, ...]:
        """Return the items that a value comes from; none for a constant."""
        maker = self._result.makers.get(id(value))
        if maker is None:
            item = self._inputs.get(id(value))
            return () if item is None else (ValueSource(item, value.name or "", value),)
        home = self._made.home[maker]
        if home >= 0 and home < len(self._made.nodes) and self._stands(maker, home):
            return (ValueSource(home, self._planned_name(home, value), value),)
        return self._followed(maker)

    def _stands(self, number: int, home: int) -> bool:
        """Whether the results of a node of the file are those of its planned node; inserted nodes pass theirs on."""
        return number == self._made.main[home] or PART in self._result.nodes[number].metadata_props

    def _followed(self, number: int) -> tuple[ValueSource, ...]:
        """Return the sources of an inserted node, found without recursion: chains of them may be long."""
        waiting = [number]
        while waiting:
            at = waiting[-1]
            if at in self._known:
                waiting.pop()
                continue
            above = [maker for value in self._result.reads[at] if (maker := self._inserted(value)) is not None]
            todo = [maker for maker in above if maker not in self._known and maker not in waiting]
            if todo:
                waiting += todo
                continue
            found: dict[int, ValueSource] = {}
            for value in self._result.reads[at]:
                maker = self._inserted(value)
                for source in self._sources(value) if maker is None else self._known.get(maker, ()):
                    found.setdefault(source.item, source._replace(through=(*source.through, at)[-_LONGEST:]))
            self._known[at] = tuple(found.values())
            waiting.pop()
        return self._known[number]

    def _inserted(self, value: ir.Value) -> int | None:
        """Return the inserted node that computes a value; None if a planned node does, or none."""
        maker = self._result.makers.get(id(value))
        if maker is None:
            return None
        home = self._made.home[maker]
        return None if 0 <= home < len(self._made.nodes) and self._stands(maker, home) else maker

    def _constant(self, value: ir.Value) -> Iterator[int]:
        """Yield the inserted nodes that compute a constant, such as the DequantizeLinear of a weight."""
        maker = self._inserted(value)
        while maker is not None and not self._followed(maker):
            yield maker
            maker = next(filter(None.__ne__, map(self._inserted, self._result.reads[maker])), None)

    def _planned_name(self, item: int, value: ir.Value) -> str:
        """Return the name that a result of a planned node had when the conversions were decided."""
        return self._made.nodes[item].output if value.index() == 0 else value.name or ""
