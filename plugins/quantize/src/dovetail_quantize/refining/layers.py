"""Layers: products with a constant weight, viewed as matrices from input to output channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import onnx_ir as ir
from dovetail.ir import constant_of, input_of, is_onnx, name_of
from dovetail.planning import get_placement, placement_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dovetail.ir import Model
    from dovetail.passes import Context


_WEIGHT, _BIAS = 1, 2
_WEIGHT_PORTS = {"Conv": "W", "ConvTranspose": "W", "Gemm": "B", "MatMul": "B"}


@dataclass(frozen=True)
class WeightLayout:
    """Layout of a weight's groups, output channels, input channels and kernel elements.

    Attributes:
        shape: The shape of the weight.
        groups: Number of groups.
        inputs_first: Whether input channels come before output channels.
    """

    shape: tuple[int, ...]
    groups: int = 1
    inputs_first: bool = False

    def matrices(self, array: np.ndarray) -> np.ndarray:
        """Reshape a weight to groups, output channels, input channels and kernel elements; a view if possible."""
        split = array.reshape(self.groups, self.shape[0] // self.groups, self.shape[1], -1)
        return split.swapaxes(1, 2) if self.inputs_first else split

    def weight(self, matrices: np.ndarray) -> np.ndarray:
        """Reshape matrices back to the weight's shape: the inverse of `matrices`."""
        return (matrices.swapaxes(1, 2) if self.inputs_first else matrices).reshape(self.shape)

    @property
    def extents(self) -> tuple[int, int, int]:
        """Number of groups, and of output and input channels per group."""
        rows, columns = self.shape[0] // self.groups, self.shape[1]
        return (self.groups, columns, rows) if self.inputs_first else (self.groups, rows, columns)


@dataclass(frozen=True, eq=False)
class Layer:
    """A product with a constant weight that has no other reader.

    Attributes:
        node: The product.
        layout: The layout of its weight.
        added_to: The Add of the bias, for operators without a bias port; None without a bias.
    """

    node: ir.Node
    layout: WeightLayout
    added_to: ir.Node | None = None

    @property
    def weight(self) -> ir.Value:
        """The constant weight."""
        return input_of(self.node, _WEIGHT)

    @property
    def weight_at(self) -> tuple[ir.Node, int]:
        """The reader of the weight and its input index."""
        return self.node, _WEIGHT

    @property
    def bias_at(self) -> tuple[ir.Node, int] | None:
        """The reader of the bias and its input index; None without a bias."""
        if self.added_to is not None:
            return self.added_to, 1 - self.added_to.inputs.index(self.node.outputs[0])
        with_port = self.node.op_type != "MatMul" and len(self.node.inputs) > _BIAS
        return (self.node, _BIAS) if with_port and self.node.inputs[_BIAS] is not None else None

    @property
    def bias(self) -> ir.Value | None:
        """The constant bias; None without one."""
        return None if self.bias_at is None else self.bias_at[0].inputs[self.bias_at[1]]

    @property
    def output(self) -> ir.Value:
        """Result of the product, before a separate Add of the bias."""
        return self.node.outputs[0]

    @property
    def is_convolution(self) -> bool:
        """Whether channels are on axis 1 of input and output; otherwise they are on the last axis."""
        return "Conv" in self.node.op_type

    @property
    def channels(self) -> int:
        """The number of output channels."""
        groups, outputs, _ = self.layout.extents
        return groups * outputs

    def quantized(self) -> bool:
        """Check whether the plan has the weight in integers."""
        placement = get_placement(self.node)
        format_ = placement.port_format(_WEIGHT_PORTS[self.node.op_type]) if placement is not None else None
        return format_ is not None and format_.quantized


def layer_of(node: ir.Node | None) -> Layer | None:
    """Return a node as a layer; None if it is not one, or if its weight or bias has other readers."""
    if node is None or not is_onnx(node) or node.op_type not in _WEIGHT_PORTS:
        return None
    if len(node.inputs) <= _WEIGHT or not is_own(node.inputs[_WEIGHT]):
        return None
    shape = tuple(constant_of(input_of(node, _WEIGHT)).shape.numpy())
    layout = _layout(node, shape)
    if layout is None or 0 in shape:
        return None
    layer = Layer(node, layout, _adding(node, layout) if node.op_type == "MatMul" else None)
    bias = layer.bias
    if bias is not None and not (is_own(bias) and constant_of(bias).size == layer.channels):
        return None
    return layer


def layers_of(nodes: Iterable[ir.Node]) -> list[Layer]:
    """Return the layers among nodes, in order."""
    return [layer for node in nodes if (layer := layer_of(node)) is not None]


def refined_layers(nodes: Iterable[ir.Node], step: str, steps: Mapping[str, tuple[str, ...]]) -> list[Layer]:
    """Return the quantized layers among nodes whose backend uses a refinement."""
    return [
        layer for layer in layers_of(nodes)
        if layer.quantized() and step in steps.get(placement_of(layer.node).backend, ())
    ]  # fmt: skip


def _layout(node: ir.Node, shape: tuple[int, ...]) -> WeightLayout | None:
    attributes = node.attributes
    if node.op_type in ("Conv", "ConvTranspose"):
        groups = attributes.get_int("group", 1)
        fits = len(shape) > 2 and groups > 0 and shape[0] % groups == 0
        return WeightLayout(shape, groups, node.op_type == "ConvTranspose") if fits else None
    if len(shape) != 2:
        return None
    if node.op_type == "MatMul":
        return WeightLayout(shape, inputs_first=True)
    plain = attributes.get_int("transA", 0) == 0
    plain &= attributes.get_float("alpha", 1.0) == attributes.get_float("beta", 1.0) == 1.0
    return WeightLayout(shape, inputs_first=not attributes.get_int("transB", 0)) if plain else None


def _adding(node: ir.Node, layout: WeightLayout) -> ir.Node | None:
    """Return the Add of a per-channel constant to a product, if it is the product's only reader."""
    value, channels = node.outputs[0], layout.shape[1]
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    reader, index = next(iter(uses))
    if reader.op_type != "Add" or not is_onnx(reader):
        return None
    other = reader.inputs[1 - index]
    return reader if is_own(other) and tuple(constant_of(other).shape) == (channels,) else None


def is_own(value: ir.Value | None) -> TypeGuard[ir.Value]:
    """Check whether a value is a float32 constant with a single use."""
    return (
        value is not None
        and value.is_initializer()
        and not value.is_graph_input()
        and not value.is_graph_output()
        and value.const_value is not None
        and value.const_value.dtype == ir.DataType.FLOAT
        and len(value.uses()) == 1
    )


class ScaledTensor(ir.LazyTensor):
    """A weight with scaled channels, computed lazily.

    Args:
        source: The weight.
        layout: Its layout.
        outputs: A factor for each output channel, or None.
        inputs: A factor for each input channel, group by group, or None.
    """

    def __init__(
        self, source: ir.TensorProtocol, layout: WeightLayout, outputs: np.ndarray | None, inputs: np.ndarray | None
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
    """A weight that the integers represent exactly, computed from them lazily.

    Args:
        levels: The integers.
        make: Converts the integers to the weight.
        source: The original weight.
    """

    def __init__(self, levels: np.ndarray, make: Callable[[np.ndarray], np.ndarray], source: ir.TensorProtocol):
        super().__init__(self._whole, source.dtype, ir.Shape(source.shape.numpy()), name=source.name)
        self.source = source
        self._levels, self._make = levels, make

    def _whole(self) -> ir.Tensor:
        return float_tensor(self._make(self._levels), self.name)


class ConstantReplacer:
    """Replaces constants of one model.

    Args:
        model: The model that is being compiled.
        ctx: Its context; the copy that it keeps for emitters changes alike, so that both compute the same.
    """

    def __init__(self, model: Model, ctx: Context):
        self._model = model
        decided = ctx.outcome.decided if ctx.outcome.decided is not None and ctx.outcome.decided is not model else None
        self._also = decided.graph if decided is not None else None

    @cached_property
    def _also_named(self) -> dict[str | None, ir.Node]:
        return {node.name: node for node in self._also} if self._also is not None else {}

    def put(self, value: ir.Value, tensor: ir.TensorProtocol) -> None:
        """Replace the tensor of an initializer by one of the same shape."""
        value.const_value = tensor
        also = self._also.initializers.get(name_of(value)) if self._also is not None else None
        if also is not None:
            also.const_value = tensor

    def scale(self, layer: Layer, outputs: np.ndarray | None, inputs: np.ndarray | None) -> None:
        """Scale the channels of a layer's weight; output factors also scale its bias."""
        self.put(layer.weight, ScaledTensor(constant_of(layer.weight), layer.layout, outputs, inputs))
        if outputs is not None and layer.bias is not None:
            self.scale_vector(layer.bias, outputs)

    def scale_vector(self, value: ir.Value, factors: np.ndarray) -> None:
        """Scale a per-channel constant."""
        array = constant_of(value).numpy()
        self.put(value, float_tensor(array.astype(np.float64) * factors.reshape(array.shape), value.name))

    def add(self, value: ir.Value, numbers: np.ndarray) -> None:
        """Add to a per-channel constant."""
        array = constant_of(value).numpy()
        self.put(value, float_tensor(array.astype(np.float64) + numbers.reshape(array.shape), value.name))

    def drop_input(self, node: ir.Node, index: int) -> None:
        """Drop the last input of a node, a constant without other readers."""
        graphs = [(self._model.graph, node)]
        if self._also is not None and node.name in self._also_named:
            graphs.append((self._also, self._also_named[node.name]))
        for graph, reader in graphs:
            name = name_of(input_of(reader, index))
            reader.resize_inputs(index)
            del graph.initializers[name]


def float_tensor(array: np.ndarray, name: str | None) -> ir.Tensor:
    """Convert an array to a float32 tensor."""
    return ir.Tensor(np.ascontiguousarray(array, dtype=np.float32), name=name)
