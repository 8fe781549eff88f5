"""The main graph's edges, the kind of value on each, and the data flow from inputs to outputs of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from dovetail.ir import FlatGraph, float_name
from dovetail_onnx.signatures import Port, Signature, Signatures, input_name, output_name

from dovetail_placement.edge_kinds import facts_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_onnx.signatures import Opsets
    from dovetail_schemas import OperatorFacts


class Sockets:
    """The ports of a model's nodes, cached per operator version.

    Args:
        facts: The backend-independent facts about operators.
        opsets: The opset imports of the model.
    """

    def __init__(self, facts: OperatorFacts, opsets: Opsets):
        self._facts = facts
        self._signatures = Signatures(opsets)
        self._known: dict[tuple, dict[tuple, tuple[str, tuple[int, ...]]]] = {}

    def at(self, node: ir.Node, index: int, numbers: bool) -> tuple[str, tuple[int, ...]]:
        """Return the kind of an input, and the positions of the outputs computed from its numbers.

        Args:
            node: The node.
            index: Position of the input.
            numbers: Whether the value carries numbers; see `carries_numbers`.
        """
        sockets = self._known.setdefault((node.op_type, node.domain, node.version), {})
        key = (index, numbers, len(node.outputs))
        known = sockets.get(key)
        if known is None:
            known = sockets[key] = self._looked_up(node, index, numbers)
        return known

    def _looked_up(self, node: ir.Node, index: int, numbers: bool) -> tuple[str, tuple[int, ...]]:
        signature = self._signatures(node)
        ends = (node.domain, node.op_type)
        kind = self._facts.input_kind(*ends, input_name(index, signature), integer=not numbers)
        port = _port(signature.input(index) if signature is not None else None, input_name(index, signature))
        linked = [
            position
            for position in range(len(node.outputs) if numbers else 0)
            if self._facts.carries(*ends, port, _output(signature, position), integer=False)
        ]
        return kind, tuple(linked)


def carries_numbers(value: ir.Value | None) -> bool:
    """Check whether a value is a float or of unknown type; other values are never quantized."""
    return value is not None and (float_name(value) is not None or value.dtype is None)


def _output(signature: Signature | None, position: int) -> str:
    return _port(signature.output(position) if signature is not None else None, output_name(position, signature))


def _port(formal: Port | None, name: str) -> str:
    """Return the name of a port in the schema; all elements of a variadic port share one."""
    return formal.name if formal else name


Direction = Literal["down", "up"]
DOWN: Direction = "down"
"""From producers to users."""
UP: Direction = "up"
"""From users to producers."""


class Edge(NamedTuple):
    """One use of a value that a node computes.

    Attributes:
        source: The node that computes the value.
        output: Position of the value among its outputs.
        target: The node that reads the value; for a use in a body, the control-flow node of the main graph.
        input: Position of the value among the inputs of `target`; -1 for a use in a body.
        value: The value.
        kind: The kind of the input port: `data`, `state`, `index` or `shape`.
        carries: Whether outputs of `target` are computed from the numbers of the value; False for extents, indices,
            bounds and conditions, and for values that are not floats.
    """

    source: ir.Node
    output: int
    target: ir.Node
    input: int
    value: ir.Value
    kind: str
    carries: bool


class SearchGraph:
    """The edges that searches follow: `view.analysis(SearchGraph)`. Built once per revision, linear in its edges.

    Constants, inputs and outputs of the model have no edges.

    Attributes:
        nodes: The nodes of the main graph, in graph order.
        readers: The outgoing edges of each node, in output order.
        producers: The incoming edges of each node, in input order.
    """

    def __init__(self, model: Model, flat: FlatGraph, facts: OperatorFacts):
        self._sockets = Sockets(facts, model.ir.opset_imports)
        self.nodes: Sequence[ir.Node] = list(model.graph)
        self.readers: Mapping[ir.Node, list[Edge]] = {node: [] for node in self.nodes}
        self.producers: Mapping[ir.Node, list[Edge]] = {node: [] for node in self.nodes}
        for node in flat.nodes:
            for index, value in enumerate(node.inputs):
                self._add(node, index, value, flat)
        for graph in flat.graphs[1:]:
            for value in graph.outputs:  # a body may return an outer value unchanged
                self._add(flat.holders[id(graph)], -1, value, flat)

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> SearchGraph:
        """Walk the current revision of `model`."""
        return cls(model, ctx.analysis(FlatGraph, model), facts_of(ctx.registry))

    def edges(self, direction: Direction) -> Mapping[ir.Node, list[Edge]]:
        """Return the edges of each node in a direction."""
        return self.readers if direction == DOWN else self.producers

    def _add(self, reader: ir.Node, index: int, value: ir.Value | None, flat: FlatGraph) -> None:
        source = value.producer() if value is not None else None
        if value is None or source is None:
            return
        readers = self.readers.get(source)
        if readers is None or source.op_type == "Constant":
            return
        numbers = carries_numbers(value)
        kind, linked = self._sockets.at(reader, index, numbers) if index >= 0 else ("data", ())
        target, producers = reader, self.producers.get(reader)
        if producers is None or index < 0:
            # The use of the value inside of the body is not followed.
            target, index, carries = flat.outermost(reader), -1, numbers and kind in ("data", "state")
            producers = self.producers[target]
        else:
            carries = any(carries_numbers(reader.outputs[position]) for position in linked)
        at = value.index()
        assert at is not None
        edge = Edge(source, at, target, index, value, kind, carries)
        readers.append(edge)
        producers.append(edge)
