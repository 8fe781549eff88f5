"""Models that consist of some nodes of a model: values from other nodes are inputs with recorded arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import is_onnx, name_of, reads_of
from dovetail.planning import Region, extract

from dovetail_verify.random_inputs import random_batch

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model

    from dovetail_verify.reducing.recording import RecordedValues


LONGEST_NAME = 1 << 15  # bytes; longer names of inputs are replaced, because archives of arrays hold none


@dataclass
class FailingModel:
    """A model that may fail, and its inputs.

    Attributes:
        model: The model.
        feeds: Its inputs by name; empty if no inputs are known.
    """

    model: Model
    feeds: Mapping[str, np.ndarray]


class ModelParts:
    """Parts of one model, each as a separate valid model.

    Args:
        model: The model; its values have types.
        feeds: Its inputs.
        recorded: Its values on these inputs; None if it does not run.
    """

    def __init__(self, model: Model, feeds: Mapping[str, np.ndarray], recorded: RecordedValues | None):
        self._model, self._feeds, self._recorded = model, feeds, recorded
        self.nodes: list[ir.Node] = list(model.graph)
        self._reads = reads_of(model.graph)
        self._outputs = {value for value in model.graph.outputs if value.producer() is not None}
        self._read = {value for values in self._reads.values() for value in values}
        self._fixed = _values_independent_of_inputs(self.nodes, self._reads)

    def whole(self) -> FailingModel:
        """Return the whole model."""
        return FailingModel(self._model, self._feeds)

    def part(self, kept: Sequence[int]) -> FailingModel | None:
        """Return the model that computes some nodes.

        A value that no input of the source influences, such as a shape, becomes a constant; it would otherwise turn a
        static model into a dynamic one. Outputs are those of the source, and values that nothing in the part reads.

        Args:
            kept: Positions of the nodes in the graph, ascending.

        Returns:
            The part; None if it would need an input that is no array.
        """
        nodes = [self.nodes[index] for index in kept]
        made = {value for node in nodes for value in node.outputs}
        read = {value: None for node in nodes for value in self._reads[node]}
        entering = [value for value in read if value not in made and not value.is_initializer()]
        leaving = [value for node in nodes for value in node.outputs if self._leaves(value, read)]
        if not leaving:
            leaving = [nodes[-1].outputs[0]]
        if any(value.type is None for value in (*entering, *leaving)):
            return None
        try:
            part = extract(self._model, Region(0, "host", tuple(nodes), tuple(entering), tuple(leaving)))
        except DovetailError:
            return None
        return self._fed(part)

    def _leaves(self, value: ir.Value, read: Mapping[ir.Value, None]) -> bool:
        return value in self._outputs or value in self._read and value not in read

    def _fed(self, part: Model) -> FailingModel | None:
        """Give a part its inputs, or make constants of them."""
        feeds: dict[str, np.ndarray] = {}
        if self._recorded is None:
            try:
                return FailingModel(part, random_batch(part))
            except DovetailError:
                return FailingModel(part, {})
        for position, value in enumerate(list(part.graph.inputs)):
            name = name_of(value)
            array = self._recorded.get(name)
            if array is None:
                return None
            if name in self._fixed:
                _make_constant(part.graph, value, array)
                continue
            if len(name.encode("utf-8", "replace")) > LONGEST_NAME:
                value.name = f"{name[:40]}_{position}"
            feeds[name_of(value)] = array
        return FailingModel(part, feeds)


def _values_independent_of_inputs(
    nodes: Sequence[ir.Node], reads: Mapping[ir.Node, tuple[ir.Value, ...]]
) -> frozenset[str]:
    """Return the names of values that depend on constants and on shapes alone."""
    fixed: set[ir.Value] = set()
    for node in nodes:
        shape = node.op_type in ("Shape", "Size") and is_onnx(node)
        if shape or all(value in fixed or value.is_initializer() for value in reads[node]):
            fixed.update(node.outputs)
    return frozenset(map(name_of, fixed))


def _make_constant(graph: ir.Graph, value: ir.Value, array: np.ndarray) -> None:
    import onnx_ir as ir

    graph.inputs.remove(value)
    value.const_value = ir.tensor(array, name=name_of(value))
    value.shape = ir.Shape(array.shape)
    graph.initializers.add(value)
