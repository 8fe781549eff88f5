"""Conversions at the border of a region that was compiled ahead of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.ir.formats import format_of
from dovetail.ir.required import input_of
from dovetail.planning.conversion import Step
from dovetail.planning.placement import HOST, get_placement

from dovetail_placement.conversion_placement import ConversionPlacement
from dovetail_placement.conversion_steps import ConversionSteps

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.fresh_names import FreshNames
    from dovetail.ir.model import Model
    from dovetail.passes import Context


class Border:
    """Puts conversions at the borders of nodes that stand for regions.

    Args:
        model: The model.
        names: Fresh names.
        ctx: Has the registered conversions.
    """

    def __init__(self, model: Model, names: FreshNames, ctx: Context):
        self._model, self._names = model, names
        self._steps, self._places = ConversionSteps(model, ctx), ConversionPlacement(model, ctx)
        # What such a backend runs are programs, which a node beside them would not enter.
        self._running = {backend.name for backend in ctx.backends if not backend.artifacts}

    def convert(self, node: ir.Node, into: Sequence[str], out: Sequence[str]) -> None:
        """Let every input and output of `node` go through conversions.

        Each runs on the backend at the other end if that takes its types, else on the host.

        Args:
            node: A node that stands for a region.
            into: Names of the conversions of each input, in order.
            out: Names of those of each output.

        Raises:
            DovetailError: A conversion is not installed, fails, or gives no value with a type.
        """
        graph = self._model.graph
        for index in range(len(node.inputs)):
            value = input_of(node, index)
            producer = value.producer()
            given_by = [producer] if producer is not None else []
            for name in into:
                value, nodes = self._converted(value, name, given_by)
                graph.insert_before(node, nodes)
            node.replace_input_with(index, value)
        for value in node.outputs if out else ():
            readers, result, behind = list(value.uses()), value, node
            for name in out:
                result, nodes = self._converted(result, name, [reader for reader, _ in readers])
                graph.insert_after(behind, nodes)
                behind = nodes[-1] if nodes else behind
            _hand_over(self._model, value, result, readers, self._names)

    def _converted(self, value: ir.Value, name: str, ends: Sequence[ir.Node]) -> tuple[ir.Value, list[ir.Node]]:
        placed = (get_placement(end) for end in ends)
        backends = dict.fromkeys(place.backend for place in placed if place and place.backend in self._running)

        def place(node: ir.Node) -> str:
            ends = [end for end in (*node.inputs, *node.outputs) if end is not None]
            formats = [format_ for end in ends if (format_ := format_of(end.dtype)) is not None]
            if len(formats) < len(ends):
                return HOST
            return self._places.choose(node, formats[0], formats[-1], backends)

        result, nodes, constants = self._steps.make(value, Step(name), place)
        for constant in constants:
            self._model.graph.register_initializer(constant)
        return result, nodes


def _hand_over(model: Model, value: ir.Value, result: ir.Value, readers: Sequence[tuple], names: FreshNames) -> None:
    """Let the readers of `value` read `result`, which takes its name and shape."""
    if result is value:
        return
    for reader, index in readers:
        reader.replace_input_with(index, result)
    for _, graph in model.graphs():
        for index, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[index] = result
    result.shape = value.shape
    value.shape = None
    name = value.name
    value.name = names.fresh(f"{name}_compiled")
    result.name = name
