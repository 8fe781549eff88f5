"""Scopes of values in nested graphs, and the graph in which a conversion dominates all of its readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.required import graph_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.flat_graph import FlatGraph

    from dovetail_precision.conversions import Conversion


_REPEATS = frozenset({"Loop", "Scan", "SequenceMap"})


class Scopes:
    """The nesting of a model's graphs."""

    def __init__(self, flat: FlatGraph):
        self._holders = flat.holders
        self._of_inputs: dict[int, ir.Graph] = {}
        for graph in flat.graphs:
            for value in (*graph.inputs, *graph.initializers.values()):
                self._of_inputs[id(value)] = graph

    def graph_of(self, value: ir.Value) -> ir.Graph:
        """Return the graph that defines `value`."""
        producer = value.producer()
        return graph_of(producer) if producer is not None else self._of_inputs[id(value)]

    def place_for(self, conversion: Conversion) -> ir.Graph:
        """Return the innermost graph that contains all readers, hoisted out of loops.

        A conversion that only one branch of an If reads stays in that branch, so that it runs only when needed.
        """
        home = self.graph_of(conversion.value)
        readers = [graph_of(node) for node, _ in conversion.uses] + [graph for graph, _ in conversion.outputs]
        chains = [self._chain(graph, home) for graph in readers]
        common = chains[0]
        for chain in chains[1:]:
            shared = [ours for ours, theirs in zip(common, chain, strict=False) if ours is theirs]
            common = common[: len(shared)]
        for depth, graph in enumerate(common[1:], start=1):
            if self._holders[id(graph)].op_type in _REPEATS:
                return common[depth - 1]
        return common[-1]

    def _chain(self, graph: ir.Graph, home: ir.Graph) -> list[ir.Graph]:
        """Return the graphs from `home` inwards to `graph`."""
        chain = [graph]
        while chain[-1] is not home:
            chain.append(graph_of(self._holders[id(chain[-1])]))
        return chain[::-1]
