"""Borders: where a value is read in another type than it is computed in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir.signatures import Signatures, input_name, output_name
from dovetail.ir.types import float_name
from dovetail.planning.placement import HOST, get_placement

from dovetail_precision.states import find_states

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.ir.parts import Parts

__all__ = ["Border", "PlannedTypes", "find_borders"]


@dataclass(slots=True)
class Border:
    """One conversion that the plan implies.

    Attributes:
        value: What is converted.
        held: The type it is computed in.
        wanted: The type it is read in.
        uses: Readers, with the index of the input.
        outputs: Graphs that give it out, with the index of the output.
    """

    value: ir.Value
    held: str
    wanted: str
    uses: list[tuple[ir.Node, int]] = field(default_factory=list)
    outputs: list[tuple[ir.Graph, int]] = field(default_factory=list)

    @property
    def owner(self) -> ir.Node:
        """The node whose backend does the conversion: the producer, or the first reader where the host produces."""
        producer = self.value.producer()
        if producer is not None and (get_placement(producer).backend != HOST or not self.uses):
            return producer
        return self.uses[0][0]


class PlannedTypes:
    """The types that a plan gives to values and to the readers of values."""

    def __init__(self, model: Model):
        self._signatures = Signatures(model.ir.opset_imports)

    def held(self, value: ir.Value) -> str | None:
        """The float type that `value` is computed in; None where it carries no float."""
        present = float_name(value)
        producer = value.producer()
        placement = get_placement(producer) if producer is not None else None
        if present is None or placement is None:
            return present
        if not placement.ports:
            return placement.precision
        return placement.port_type(output_name(value.index(), self._signatures(producer)))

    def wanted(self, node: ir.Node, index: int) -> str | None:
        """The float type that `node` reads its input `index` in; None where that carries no float."""
        if float_name(node.inputs[index]) is None:
            return None
        placement = get_placement(node)
        if not placement.ports:
            return placement.precision
        return placement.port_type(input_name(index, self._signatures(node)))

    def given(self, value: ir.Value) -> str:
        """The type in which an input is given that need not keep its own: that of all of its readers."""
        wanted = {self.wanted(node, index) for node, index in value.uses()}
        lone = len(wanted) == 1 and None not in wanted and not value.is_graph_output()
        return wanted.pop() if lone else float_name(value)


def find_borders(parts: Parts, types: PlannedTypes, keep_io_types: bool = True) -> list[Border]:
    """All borders of a planned model in the order of their first readers; weights are none, they are converted.

    Args:
        parts: The parts of a model whose nodes have placements, before joins.
        types: Its planned types.
        keep_io_types: Give the model's outputs in the types of the source model. Else only a state, which comes back
            as an input, has a type that it must be given in: the one that the input has.
    """
    found: dict[tuple[int, str], Border] = {}
    main = parts.graphs[0]
    overridable = {id(value) for value in main.inputs}

    def border(value: ir.Value, held: str, wanted: str) -> Border:
        return found.setdefault((id(value), wanted), Border(value, held, wanted))

    for node in parts.nodes:
        for index, value in enumerate(node.inputs):
            if value is None or value.is_initializer() and id(value) not in overridable:
                continue
            wanted = types.wanted(node, index)
            if wanted is not None and wanted != (held := types.held(value)):
                border(value, held, wanted).uses.append((node, index))
    for graph in parts.graphs:
        free = graph is main and not keep_io_types
        states = {id(output): types.given(value) for value, output in find_states(graph)} if free else {}
        for index, value in enumerate(graph.outputs):
            held = types.held(value)
            wanted = states.get(id(value), held) if free else float_name(value)
            if held is not None and held != wanted:
                border(value, held, wanted).outputs.append((graph, index))
    return list(found.values())
