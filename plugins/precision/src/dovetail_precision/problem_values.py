"""The values of a typing problem that is built from a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from dovetail.ir.formats import Format, float_format

from dovetail_precision.recurrent_io import find_recurrent_io
from dovetail_precision.variable import Value

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.flat_graph import FlatGraph
    from dovetail.ir.model import Model


class ProblemValues:
    """Makes one `Value` per float value of a model, when it is first asked for."""

    def __init__(self, model: Model, flat: FlatGraph, keeps_io_types: bool):
        self._model = model
        self._flat = flat
        self._keeps_io_types = keeps_io_types
        self._equated: set[tuple[int, int]] = set()
        self._known: dict[int, Value] = {}
        weights = (value for graph in flat.graphs for value in graph.initializers.values())
        overridable = {id(value) for value in model.graph.inputs}
        self._constants = {id(value) for value in weights if value.const_value is not None} - overridable

    def is_constant(self, value: ir.Value) -> bool:
        """Whether `value` is a weight that can be stored in any type."""
        return id(value) in self._constants

    def of(self, value: ir.Value | None) -> Value:
        """Return what stands for `value` in the problem."""
        key = id(value)
        known = self._known.get(key)
        if known is None:
            assert value is not None
            present = cast(Format, float_format(value))
            known = Value(value.name or "", present, key in self._constants, source=value)
            self._known[key] = known
        return known

    def equate(self, outputs: Iterable[tuple[ir.Graph, int]]) -> None:
        """Note that a variable decides the types of these outputs of bodies, given as body and index."""
        self._equated.update((id(graph), index) for graph, index in outputs)

    def finish(self, typed: set[int]) -> None:
        """Mark the values that are also read in their present format, and the inputs whose type is free.

        Args:
            typed: The `id` of every node that has a variable; all others read the present format.
        """
        for value in self._kept(typed):
            known = self._known.get(id(value))
            if known is not None:
                known.kept = True
        if not self._keeps_io_types:
            self._free_inputs()

    def _kept(self, typed: set[int]) -> list[ir.Value | None]:
        kept = [value for node in self._flat.nodes if id(node) not in typed for value in node.inputs]
        main = self._flat.graphs[0]
        for graph in self._flat.graphs:
            free = graph is main and not self._keeps_io_types
            for index, value in enumerate(graph.outputs):
                if (id(graph), index) not in self._equated and (not free or self.is_constant(value)):
                    kept.append(value)
        return kept

    def _free_inputs(self) -> None:
        """Let model inputs follow their readers, and a recurrent output be read like its input."""
        graph = self._model.graph
        for value in graph.inputs:
            known = self._known.get(id(value))
            if known is not None and not value.is_initializer() and not value.is_graph_output():
                known.free = True
        for value, output in find_recurrent_io(graph):
            known, back = self._known.get(id(value)), self._known.get(id(output))
            if known is not None and back is not None:
                back.input_of_state = known
