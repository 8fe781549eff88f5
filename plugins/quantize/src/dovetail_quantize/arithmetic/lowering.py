"""One quantized node while it is written in integers: its ports, and the nodes that replace it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from dovetail.ir import input_of
from dovetail.planning import get_placement
from dovetail_transforms.rewriting import Replacement

from dovetail_quantize.arithmetic.ports import IntegerResult, Integers, NotIntegerError, Result, integers_of, results_of

if TYPE_CHECKING:
    from dovetail.ir import FreshNames

    from dovetail_quantize.arithmetic.parts import Parts


class Lowering:
    """A node, what it reads in integers, and what its results shall be.

    Args:
        node: The node.

    Attributes:
        node: The node.
        operands: Its inputs in integers; None for those that are not.
        results: Its results.
        nodes: Makes the nodes that replace it; set before it is written.
        parts: The operands of integer products of the graph; set before it is written.
    """

    nodes: Nodes
    parts: Parts

    def __init__(self, node: ir.Node):
        self.node = node
        self.operands: list[Integers | None] = [integers_of(value) for value in node.inputs]
        self.results: list[Result] = results_of(node)

    @property
    def quantized(self) -> bool:
        """Whether it reads or computes integers at all."""
        return any(self.operands) or any(result.held is not None for result in self.results)

    @property
    def shape(self) -> ir.Shape | None:
        """The shape of its first result."""
        return self.node.outputs[0].shape

    @property
    def rank(self) -> int:
        """The rank of its first input.

        Raises:
            NotIntegerError: It is not known.
        """
        shape = input_of(self.node, 0).shape
        if shape is None:
            raise NotIntegerError("the rank of its input is not known")
        return len(shape)

    def operand(self, index: int) -> Integers:
        """An input in integers.

        Raises:
            NotIntegerError: It is not in integers.
        """
        held = self.operands[index]
        if held is None:
            value = self.node.inputs[index]
            raise NotIntegerError(f"its input '{value.name if value is not None else index}' holds floats")
        return held

    def result(self, index: int) -> IntegerResult:
        """A result in integers.

        Raises:
            NotIntegerError: It is read as it is, or its scales differ.
        """
        result = self.results[index]
        if result.held is None:
            raise NotIntegerError(f"its result '{result.value.name}' is read as floats")
        result.held.one_scale()
        return IntegerResult(result.held, result.activation)

    def constant(self, index: int) -> np.ndarray | None:
        """The numbers of a constant input; None if it is computed."""
        value = self.node.inputs[index]
        held = self.operands[index]
        if held is not None and held.tensor is not None:
            scale, zero = held.one_scale()
            return (held.tensor.numpy().astype("int64") - zero) * scale
        if value is None or value.const_value is None or value.is_graph_input():
            return None
        return value.const_value.numpy()


def as_dtype(kind: type | ir.DataType) -> ir.DataType:
    """The element type of NumPy's `kind`."""
    return kind if isinstance(kind, ir.DataType) else ir.DataType.from_numpy(np.dtype(kind))


class Constants:
    """Constants that the nodes of one graph share: multipliers, bounds, shapes and tables with the same content."""

    def __init__(self, graph: ir.Graph, names: FreshNames):
        self._graph, self._names = graph, names
        self._known: dict[tuple, ir.Value] = {}

    def get(self, array: np.ndarray, what: str) -> ir.Value:
        """An initializer with these numbers; `what` is its name if it is a new one."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self.add(ir.Tensor(array), what)
        return self._known[key]

    def stored(self, key: tuple, tensor: ir.TensorProtocol, what: str) -> ir.Value:
        """An initializer with a tensor that is computed when it is read, and known by `key`."""
        if key not in self._known:
            self._known[key] = self.add(tensor, what)
        return self._known[key]

    def add(self, tensor: ir.TensorProtocol, what: str) -> ir.Value:
        """A new initializer."""
        tensor.name = self._names.fresh(what)
        shape = ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
        self._graph.register_initializer(value)
        return value


class Nodes:
    """Makes typed nodes for one node.

    Attributes:
        node: The node that is replaced.
        constants: The constants of its graph.
        version: The version of the default domain.
        made: The nodes so far, in order.
    """

    def __init__(self, node: ir.Node, names: FreshNames, version: int, constants: Constants):
        self.node, self.version, self.constants = node, version, constants
        self._op = Replacement(node, names, version)

    @property
    def made(self) -> list[ir.Node]:
        """The nodes so far, in order."""
        return self._op.nodes

    @property
    def region(self) -> int | None:
        """The region that they will be in."""
        placement = get_placement(self.node)
        return placement.region if placement is not None else None

    def make(
        self, op_type: str, inputs: Sequence[ir.Value | None], dtype: type | ir.DataType, like: Any = None, **attributes
    ) -> ir.Value:
        """Make a node with one output.

        Args:
            op_type: The operator.
            inputs: What it reads.
            dtype: The element type of its result.
            like: The shape of its result, or a value that has it; None where it is not known.
            **attributes: Attributes; those that are None are left out.
        """
        result = self._op.make(op_type, inputs, **attributes)
        return self.typed(result, dtype, like)

    def copy(
        self, inputs: Sequence[ir.Value | None], dtypes: Sequence[type | ir.DataType], **attributes
    ) -> list[ir.Value]:
        """Make a node like the replaced one with other inputs, and results of other types."""
        kept = {name: value for name, value in self.node.attributes.items() if name not in attributes}
        outputs = len(self.node.outputs)
        made = self._op.make(self.node.op_type, inputs, outputs, self.node.domain, **kept, **attributes)
        results = [made] if outputs == 1 else list(made)
        for result, dtype, old in zip(results, dtypes, self.node.outputs, strict=True):
            self.typed(result, dtype, old)
        return results

    def cast(self, value: ir.Value, dtype: type | ir.DataType) -> ir.Value:
        """The value in another element type; itself if it has that."""
        wanted = as_dtype(dtype)
        if value.dtype == wanted:
            return value
        return self.make("Cast", [value], wanted, value, to=wanted.value)

    def constant(self, array: Any, dtype: type | np.dtype, what: str) -> ir.Value:
        """A shared constant."""
        return self.constants.get(np.asarray(array, dtype), what)

    def named(self, what: str) -> str:
        """The name of a constant of this node."""
        return f"{self.node.name or self.node.op_type}_{what}"

    def abandon(self) -> None:
        """Let nothing of what was made read anything."""
        for made in self.made:
            for index in range(len(made.inputs)):
                made.replace_input_with(index, None)

    @staticmethod
    def typed(value: ir.Value, dtype: type | ir.DataType, like: Any = None) -> ir.Value:
        """Give a value its type and shape."""
        shape = like.shape if isinstance(like, ir.Value) else like
        value.type = ir.TensorType(as_dtype(dtype))
        value.shape = shape if shape is None or isinstance(shape, ir.Shape) else ir.Shape(shape)
        return value
