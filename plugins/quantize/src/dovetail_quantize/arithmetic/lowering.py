"""Lowering of one quantized node to integer operators: its ports, and the nodes that replace it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from dovetail.ir import input_of
from dovetail.planning import get_placement
from dovetail_transforms.rewriting import Replacement

from dovetail_quantize.arithmetic.ports import (
    IntegerResult,
    Integers,
    NotIntegerError,
    QuantizedResult,
    integers_of,
    results_of,
)

if TYPE_CHECKING:
    from dovetail.ir import FreshNames

    from dovetail_quantize.arithmetic.parts import Parts


class Lowering:
    """A node that is being lowered, with its integer operands and the required results.

    Args:
        node: The node.

    Attributes:
        node: The node.
        operands: Its integer inputs; None for inputs that are not integers.
        results: Its results.
        nodes: Builder of the nodes that replace it; set before the lowering function runs.
        parts: Operands of the graph's integer products; set before the lowering function runs.
    """

    nodes: Nodes
    parts: Parts

    def __init__(self, node: ir.Node):
        self.node = node
        self.operands: list[Integers | None] = [integers_of(value) for value in node.inputs]
        self.results: list[QuantizedResult] = results_of(node)

    @property
    def quantized(self) -> bool:
        """Whether the node reads or computes any integers."""
        return any(self.operands) or any(result.held is not None for result in self.results)

    @property
    def shape(self) -> ir.Shape | None:
        """Shape of the first result."""
        return self.node.outputs[0].shape

    @property
    def rank(self) -> int:
        """Rank of the first input.

        Raises:
            NotIntegerError: The rank is unknown.
        """
        shape = input_of(self.node, 0).shape
        if shape is None:
            raise NotIntegerError("the rank of its input is not known")
        return len(shape)

    def operand(self, index: int) -> Integers:
        """Return an input in integers.

        Raises:
            NotIntegerError: The input holds floats.
        """
        held = self.operands[index]
        if held is None:
            value = self.node.inputs[index]
            raise NotIntegerError(f"its input '{value.name if value is not None else index}' holds floats")
        return held

    def result(self, index: int) -> IntegerResult:
        """Return the integer form of a result.

        Raises:
            NotIntegerError: The result is read as floats, or has one scale per channel.
        """
        result = self.results[index]
        if result.held is None:
            raise NotIntegerError(f"its result '{result.value.name}' is read as floats")
        result.held.one_scale()
        return IntegerResult(result.held, result.activation)

    def constant(self, index: int) -> np.ndarray | None:
        """Return the real numbers of a constant input; None if the input is computed."""
        value = self.node.inputs[index]
        held = self.operands[index]
        if held is not None and held.tensor is not None:
            scale, zero = held.one_scale()
            return (held.tensor.numpy().astype("int64") - zero) * scale
        if value is None or value.const_value is None or value.is_graph_input():
            return None
        return value.const_value.numpy()


def as_dtype(kind: type | ir.DataType) -> ir.DataType:
    """Return the ONNX element type of `kind`, a NumPy type or already an element type."""
    return kind if isinstance(kind, ir.DataType) else ir.DataType.from_numpy(np.dtype(kind))


class LoweredConstants:
    """Deduplicated constants of one graph: multipliers, bounds, shapes and tables."""

    def __init__(self, graph: ir.Graph, names: FreshNames):
        self._graph, self._names = graph, names
        self._known: dict[tuple, ir.Value] = {}

    def get(self, array: np.ndarray, what: str) -> ir.Value:
        """Return an initializer with the content of `array`; a new one is named after `what`."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self.add(ir.Tensor(array), what)
        return self._known[key]

    def stored(self, key: tuple, tensor: ir.TensorProtocol, what: str) -> ir.Value:
        """Return the initializer known by `key`; a new one holds the lazy `tensor` and is named after `what`."""
        if key not in self._known:
            self._known[key] = self.add(tensor, what)
        return self._known[key]

    def add(self, tensor: ir.TensorProtocol, what: str) -> ir.Value:
        """Register a new initializer."""
        tensor.name = self._names.fresh(what)
        shape = ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
        self._graph.register_initializer(value)
        return value


class Nodes:
    """Builder of the typed nodes that replace one node.

    Attributes:
        node: The node to replace.
        constants: The constants of its graph.
        version: Opset version of the default domain.
        made: The nodes made so far, in order.
    """

    def __init__(self, node: ir.Node, names: FreshNames, version: int, constants: LoweredConstants):
        self.node, self.version, self.constants = node, version, constants
        self._op = Replacement(node, names, version)

    @property
    def made(self) -> list[ir.Node]:
        """The nodes made so far, in order."""
        return self._op.nodes

    @property
    def region(self) -> int | None:
        """Region of the replaced node, which the new nodes inherit."""
        placement = get_placement(self.node)
        return placement.region if placement is not None else None

    def make(
        self, op_type: str, inputs: Sequence[ir.Value | None], dtype: type | ir.DataType, like: Any = None, **attributes
    ) -> ir.Value:
        """Make a node with one output.

        Args:
            op_type: The operator.
            inputs: Its operands.
            dtype: The element type of its result.
            like: The shape of its result, or a value of that shape; None if unknown.
            **attributes: Attributes; None omits one.
        """
        result = self._op.make(op_type, inputs, **attributes)
        return self.typed(result, dtype, like)

    def copy(
        self, inputs: Sequence[ir.Value | None], dtypes: Sequence[type | ir.DataType], **attributes
    ) -> list[ir.Value]:
        """Clone the replaced node with other inputs and other result types."""
        kept = {name: value for name, value in self.node.attributes.items() if name not in attributes}
        outputs = len(self.node.outputs)
        made = self._op.make(self.node.op_type, inputs, outputs, self.node.domain, **kept, **attributes)
        results = [made] if outputs == 1 else list(made)
        for result, dtype, old in zip(results, dtypes, self.node.outputs, strict=True):
            self.typed(result, dtype, old)
        return results

    def cast(self, value: ir.Value, dtype: type | ir.DataType) -> ir.Value:
        """Cast a value to an element type; return it unchanged if it has that type."""
        wanted = as_dtype(dtype)
        if value.dtype == wanted:
            return value
        return self.make("Cast", [value], wanted, value, to=wanted.value)

    def constant(self, array: Any, dtype: type | np.dtype, what: str) -> ir.Value:
        """Return a deduplicated constant."""
        return self.constants.get(np.asarray(array, dtype), what)

    def named(self, what: str) -> str:
        """Return the name for a constant of this node."""
        return f"{self.node.name or self.node.op_type}_{what}"

    def abandon(self) -> None:
        """Detach the inputs of every node made so far, so that they leave no uses."""
        for made in self.made:
            for index in range(len(made.inputs)):
                made.replace_input_with(index, None)

    @staticmethod
    def typed(value: ir.Value, dtype: type | ir.DataType, like: Any = None) -> ir.Value:
        """Set the type and shape of a value, and return it."""
        shape = like.shape if isinstance(like, ir.Value) else like
        value.type = ir.TensorType(as_dtype(dtype))
        value.shape = shape if shape is None or isinstance(shape, ir.Shape) else ir.Shape(shape)
        return value
