"""Local graph edits that leave all other edges unchanged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from dovetail.ir.graphs import all_nodes, bodies
from dovetail.ir.required import graph_of, input_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model


def replace_uses_except(old: ir.Value, new: ir.Value, keep: Collection[ir.Node] = ()) -> int:
    """Replace uses of `old` by `new`, except in the nodes in `keep`; graph outputs are not changed.

    A node that computes `new` from `old` must be in `keep`, or it would use its own result.

    Returns:
        The number of replaced uses.
    """
    uses = [(node, index) for node, index in old.uses() if node not in keep]
    for node, index in uses:
        node.replace_input_with(index, new)
    return len(uses)


def insert_on_edge(node: ir.Node, index: int, make: Callable[[ir.Value], ir.Node]) -> ir.Node:
    """Insert a node on the edge into input `index` of `node`; other uses of the value are not changed.

    Args:
        node: The user of the value.
        index: Index of the input.
        make: Builds the new single-output node from the value on the edge.

    Raises:
        ValueError: The input is absent.
    """
    inserted = make(input_of(node, index))
    graph_of(node).insert_before(node, inserted)
    node.replace_input_with(index, inserted.outputs[0])
    return inserted


def insert_beside(node: ir.Node, side: str, make: Callable[[ir.Value], ir.Node]) -> ir.Node:
    """Insert a node on the first input of `node` (`before`), or between its first output and all uses (`after`).

    Args:
        node: The node to insert next to.
        side: `before` or `after`.
        make: Builds the new single-output node from the value that it reads.

    A graph output keeps its name: the new node then defines it.

    Raises:
        ValueError: The input is absent.
    """
    if side == "before":
        return insert_on_edge(node, 0, make)
    value = node.outputs[0]
    inserted = make(value)
    result = inserted.outputs[0]
    graph = graph_of(node)
    graph.insert_after(node, inserted)
    replace_uses_except(value, result, keep=(inserted,))
    if value.is_graph_output():
        outputs = graph.outputs
        for index in [index for index, output in enumerate(outputs) if output is value]:
            outputs[index] = result
        name, value.name = value.name, result.name
        result.name = name
    return inserted


def insert_after_value(graph: ir.Graph, value: ir.Value, node: ir.Node) -> None:
    """Insert `node` into `graph` at the first position that `value` dominates.

    This is right after its producer in `graph`; for inputs, initializers and captured values, the start of the graph.
    """
    producer = value.producer()
    if producer is not None and producer.graph is graph:
        graph.insert_after(producer, node)
    elif len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)


class FreshNames:
    """Generator of names unused by values, initializers, inputs and nodes of the main graph and all bodies.

    A body must not shadow outer names, so names are unique in the whole model, not per graph. (The name authority of
    onnx-ir is per graph and ignores outer scopes and bodies.) As an analysis, `ctx.analysis(FreshNames, model)`, one
    generator serves all passes until the model changes. A name is never returned twice.

    Args:
        taken: The names in use.
    """

    def __init__(self, taken: Iterable[str | None] = ()):
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    @classmethod
    def of(cls, graph: ir.Graph) -> FreshNames:
        """Return the generator for a main graph and all of its bodies, built in one walk."""
        nodes = list(all_nodes(graph))
        taken: set[str | None] = {node.name for node in nodes}
        taken.update([value.name for node in nodes for value in node.outputs])
        for held in (graph, *(body for node in nodes for body in bodies(node))):
            taken.update([value.name for value in held.inputs])
            taken.update(held.initializers)
        return cls(taken)

    @classmethod
    def compute(cls, model: Model, _: object) -> FreshNames:
        """Return the generator for the current revision of `model`."""
        return model.names or cls.of(model.graph)

    def reserve(self, name: str) -> None:
        """Reserve `name`, so that it is never returned."""
        self._taken.add(name)

    def fresh(self, wanted: str) -> str:
        """Return `wanted` if it is unused, else `wanted_1`, `wanted_2`, ...; the name is then reserved."""
        name, number = wanted, self._numbers.get(wanted, 0)
        while name in self._taken:
            # Continue from the last number: many names with one stem then take linear time.
            number += 1
            name = f"{wanted}_{number}"
        self._numbers[wanted] = number
        self._taken.add(name)
        return name
