"""Operands of integer products: uint8 with zero points, which every engine multiplies without saturating.

Kernels with one signed operand add two products in 16 bits on processors without the dot-product instructions, and that
sum saturates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.ir import constant_of, dtype_name

from dovetail_quantize.arithmetic.lowering import NotIntegerError

if TYPE_CHECKING:
    from dovetail_quantize.arithmetic.lowering import Nodes
    from dovetail_quantize.arithmetic.ports import Integers


class UnsignedTensor(ir.LazyTensor):
    """A weight's integers in uint8 and another layout; signed integers are shifted by 128.

    Attributes:
        source: The weight in integers.
    """

    def __init__(
        self,
        source: ir.TensorProtocol,
        shape: Sequence[int],
        layout: Callable[[np.ndarray], np.ndarray] | None = None,
        signed: bool = True,
    ):
        super().__init__(self._whole, ir.DataType.UINT8, ir.Shape(shape), name=source.name)
        self.source = source
        self._layout, self._signed = layout, signed

    def _whole(self) -> ir.Tensor:
        integers = self.source.numpy()
        if self._layout is not None:
            integers = self._layout(integers)
        if self._signed:
            integers = integers.astype(np.int8, copy=False).view(np.uint8) ^ np.uint8(128)
        return ir.Tensor(np.ascontiguousarray(integers.astype(np.uint8, copy=False)), name=self.name)


_ADDS_BYTES = 14  # opset


class ProductOperand(NamedTuple):
    """One operand of an integer product.

    Attributes:
        value: The uint8 integers.
        zero: Their zero point.
        factor: The factor by which their products count.
        largest: Largest distance of an integer from the zero point.
    """

    value: ir.Value
    zero: int
    factor: int
    largest: int


class Parts:
    """Operands of the products of one graph, shared between the products of a region that read the same value."""

    def __init__(self):
        self._known: dict[tuple[int, int | None], list[ProductOperand]] = {}

    def of(self, nodes: Nodes, held: Integers) -> list[ProductOperand]:
        """Return the parts of an activation: one for 8 bits, two for 16 bits.

        Raises:
            NotIntegerError: Its element type is not supported.
        """
        key = (id(held.value), nodes.region)
        if key not in self._known:
            self._known[key] = _parts(nodes, held)
        return self._known[key]

    def forget(self, made: Sequence[ir.Node]) -> None:
        """Forget the parts that abandoned nodes compute, because those nodes do not enter the graph."""
        values = {id(value) for node in made for value in node.outputs}
        self._known = {key: parts for key, parts in self._known.items() if id(parts[0].value) not in values}


def stored_part(
    nodes: Nodes,
    held: Integers,
    shape: Sequence[int],
    layout: Callable[[np.ndarray], np.ndarray] | None = None,
    what: str = "",
) -> ProductOperand:
    """Return a weight as a part in a given layout.

    Args:
        nodes: The nodes of the product.
        held: The weight.
        shape: The shape in that layout.
        layout: Converts the integers to that layout; None keeps theirs.
        what: The name of the layout, part of the constant's name.

    Raises:
        NotIntegerError: Its element type or its zero points are not supported.
    """
    zero = np.unique(held.zero)
    if held.dtype.bitwidth > 8:
        raise NotIntegerError(f"its weight '{held.value.name}' is {dtype_name(held.dtype)}")
    if zero.size > 1:
        raise NotIntegerError(f"its weight '{held.value.name}' has a zero point per channel")
    signed = held.low < 0
    tensor = UnsignedTensor(constant_of(held.value), shape, layout, signed)
    key = ("weight", id(held.tensor), what, tuple(shape))
    stored = nodes.constants.stored(key, tensor, f"{held.value.name}_{what}uint8")
    return ProductOperand(stored, int(zero[0]) + (128 if signed else 0), 1, held.largest)


def _parts(nodes: Nodes, held: Integers) -> list[ProductOperand]:
    _, zero = held.one_scale()
    kind, value = dtype_name(held.dtype), held.value
    if kind == "uint8":
        return [ProductOperand(value, zero, 1, held.largest)]
    if kind == "int8":
        return [ProductOperand(_moved(nodes, value), zero + 128, 1, held.largest)]
    if kind == "int16" and zero == 0:
        low = nodes.cast(value, np.uint8)  # keeps the low byte
        wide = nodes.cast(value, np.int32)
        rest = nodes.make("Sub", [wide, nodes.cast(low, np.int32)], np.int32, value)
        high = nodes.make("Div", [rest, nodes.constant(256, np.int32, "high_byte")], np.int32, value)
        high = nodes.make("Add", [high, nodes.constant(128, np.int32, "middle")], np.int32, value)
        return [ProductOperand(nodes.cast(high, np.uint8), 128, 256, 128), ProductOperand(low, 0, 1, 255)]
    raise NotIntegerError(f"'{value.name}' is {kind} with the zero point {zero}, which integer products do not take")


def _moved(nodes: Nodes, value: ir.Value) -> ir.Value:
    """Shift int8 by 128 to uint8."""
    kind = np.uint8 if nodes.version >= _ADDS_BYTES else np.int32
    moved = nodes.make("Add", [nodes.cast(value, kind), nodes.constant(128, kind, "middle")], kind, value)
    return nodes.cast(moved, np.uint8)
