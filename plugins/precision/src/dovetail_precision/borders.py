"""Borders: where a value is read in another type than it is computed in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir.signatures import input_name, output_name, signature
from dovetail.ir.types import float_name
from dovetail.planning.placement import HOST, get_placement

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model

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
        self._opsets = model.ir.opset_imports

    def held(self, value: ir.Value) -> str | None:
        """The float type that `value` is computed in; None where it carries no float."""
        present = float_name(value)
        producer = value.producer()
        placement = get_placement(producer) if producer is not None else None
        if present is None or placement is None:
            return present
        return placement.port_type(output_name(value.index(), signature(producer, self._opsets)))

    def wanted(self, node: ir.Node, index: int) -> str | None:
        """The float type that `node` reads its input `index` in; None where that carries no float."""
        if float_name(node.inputs[index]) is None:
            return None
        return get_placement(node).port_type(input_name(index, signature(node, self._opsets)))


def find_borders(model: Model, types: PlannedTypes, keep_io_types: bool = True) -> list[Border]:
    """All borders of a planned model in the order of their first readers; weights are none, they are converted.

    Args:
        model: A model whose nodes have placements, before joins.
        types: Its planned types.
        keep_io_types: Give the model's outputs in the types of the source model.
    """
    found: dict[tuple[int, str], Border] = {}
    overridable = {id(value) for value in model.graph.inputs}

    def border(value: ir.Value, held: str, wanted: str) -> Border:
        return found.setdefault((id(value), wanted), Border(value, held, wanted))

    for node in model.nodes():
        for index, value in enumerate(node.inputs):
            if value is None or value.is_initializer() and id(value) not in overridable:
                continue
            wanted, held = types.wanted(node, index), types.held(value)
            if wanted is not None and wanted != held:
                border(value, held, wanted).uses.append((node, index))
    for _, graph in model.graphs():
        if graph is model.graph and not keep_io_types:
            continue
        for index, value in enumerate(graph.outputs):
            present, held = float_name(value), types.held(value)
            if held is not None and held != present:
                border(value, held, present).outputs.append((graph, index))
    return list(found.values())
