"""One quantised node while it is written in integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.required import input_of

from dovetail_quantize.arithmetic.not_integer import NotIntegerError
from dovetail_quantize.arithmetic.ports import IntegerResult, Integers, Result, integers_of, results_of

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail_quantize.arithmetic.nodes import Nodes
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
    def quantised(self) -> bool:
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
