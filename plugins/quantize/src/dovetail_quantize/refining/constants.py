"""Constants that refining replaces, in the graph that is carried out and in the one that emitters see."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir.required import constant_of, input_of, name_of

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.layers import Layer, Layout


class ScaledTensor(ir.LazyTensor):
    """A weight whose channels are scaled, computed when it is read.

    Args:
        source: The weight.
        layout: Its layout.
        outputs: A factor for each output channel, or None.
        inputs: A factor for each input channel, those of all groups in turn, or None.
    """

    def __init__(
        self, source: ir.TensorProtocol, layout: Layout, outputs: np.ndarray | None, inputs: np.ndarray | None
    ):
        super().__init__(self._whole, source.dtype, ir.Shape(source.shape.numpy()), name=source.name)
        self.source = source
        self._layout, self._outputs, self._inputs = layout, outputs, inputs

    def _whole(self) -> ir.Tensor:
        groups, rows, columns = self._layout.extents
        found = self._layout.matrices(self.source.numpy()).astype(np.float64)
        if self._outputs is not None:
            found = found * self._outputs.reshape(groups, rows, 1, 1)
        if self._inputs is not None:
            found = found * self._inputs.reshape(groups, 1, columns, 1)
        return float_tensor(self._layout.weight(found), self.name)


class RefinedTensor(ir.LazyTensor):
    """A weight that integers hold exactly, computed from these when it is read.

    Args:
        levels: The integers.
        make: Makes the weight of them.
        source: The weight that it replaces.
    """

    def __init__(self, levels: np.ndarray, make: Callable[[np.ndarray], np.ndarray], source: ir.TensorProtocol):
        super().__init__(self._whole, source.dtype, ir.Shape(source.shape.numpy()), name=source.name)
        self.source = source
        self._levels, self._make = levels, make

    def _whole(self) -> ir.Tensor:
        return float_tensor(self._make(self._levels), self.name)


class Constants:
    """Replaces constants of one model.

    Args:
        model: The model that is carried out.
        ctx: Its run; what it keeps for emitters changes, too, so that both compute the same.
    """

    def __init__(self, model: Model, ctx: Context):
        self._model = model
        decided = ctx.outcome.decided if ctx.outcome.decided is not None and ctx.outcome.decided is not model else None
        self._also = decided.graph if decided is not None else None

    @cached_property
    def _also_named(self) -> dict[str | None, ir.Node]:
        return {node.name: node for node in self._also} if self._also is not None else {}

    def put(self, value: ir.Value, tensor: ir.TensorProtocol) -> None:
        """Give an initializer another tensor of its shape."""
        value.const_value = tensor
        also = self._also.initializers.get(name_of(value)) if self._also is not None else None
        if also is not None:
            also.const_value = tensor

    def scale(self, layer: Layer, outputs: np.ndarray | None, inputs: np.ndarray | None) -> None:
        """Scale the channels of a layer's weight, and with the outputs its bias."""
        self.put(layer.weight, ScaledTensor(constant_of(layer.weight), layer.layout, outputs, inputs))
        if outputs is not None and layer.bias is not None:
            self.scale_vector(layer.bias, outputs)

    def scale_vector(self, value: ir.Value, factors: np.ndarray) -> None:
        """Scale a constant with one number per channel."""
        array = constant_of(value).numpy()
        self.put(value, float_tensor(array.astype(np.float64) * factors.reshape(array.shape), value.name))

    def add(self, value: ir.Value, numbers: np.ndarray) -> None:
        """Add to a constant with one number per channel."""
        array = constant_of(value).numpy()
        self.put(value, float_tensor(array.astype(np.float64) + numbers.reshape(array.shape), value.name))

    def drop_input(self, node: ir.Node, index: int) -> None:
        """Take away the last input of a node, a constant that nothing else reads."""
        graphs = [(self._model.graph, node)]
        if self._also is not None and node.name in self._also_named:
            graphs.append((self._also, self._also_named[node.name]))
        for graph, reader in graphs:
            name = name_of(input_of(reader, index))
            reader.resize_inputs(index)
            del graph.initializers[name]


def float_tensor(array: np.ndarray, name: str | None) -> ir.Tensor:
    """An array as a float32 tensor."""
    return ir.Tensor(np.ascontiguousarray(array, dtype=np.float32), name=name)
