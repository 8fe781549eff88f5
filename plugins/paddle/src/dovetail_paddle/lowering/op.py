"""One `pd_op` operator as rules see it: arguments by name, with what is known of them."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from dovetail.ir import dtype_of

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.pd_graph import BUILTIN, PD_OP, SOURCE, STRUCT, operands
from dovetail_paddle.signatures import Operator

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import Emitter


_MOST = 1 << 28  # elements

CONSTANTS = frozenset(("full", "full_int_array", "assign_value"))
"""Operators without inputs whose result is known."""


def constant_of(value: ir.Value) -> np.ndarray | None:
    """Return the elements of a value that is a parameter or the result of a constant operator; None otherwise.

    A list of constants with one element each counts as the list of their elements.
    """
    import numpy as np

    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    if node is None:
        return None
    if node.domain == BUILTIN and node.op_type == "combine":
        items = [constant_of(item) for item in operands(node)]
        known = [item.reshape(()) for item in items if item is not None and item.size == 1]
        return np.array(known) if len(known) == len(items) else None
    if node.domain != PD_OP:
        return None
    op_type = node.op_type.removesuffix("_")
    if op_type in CONSTANTS:
        return _made(node, op_type)
    if op_type in ("assign", "share_data", "memcpy_h2d", "memcpy_d2h"):
        return constant_of(operands(node)[0])
    return None


def check_size(*extents: float) -> None:
    """Refuse constants that no honest program has.

    Raises:
        ValueError: It has too many elements, or a negative extent.
    """
    if any(not 0 <= extent <= _MOST for extent in extents) or math.prod(extents) > _MOST:
        raise ValueError(f"a constant with the extents {list(extents)} is not made")


def _made(node: ir.Node, op_type: str) -> np.ndarray:
    import numpy as np

    attributes = node.attributes
    named = attributes["dtype"].as_string() if "dtype" in attributes else "int64"
    kind = (onnx_type(named) or dtype_of(node.outputs[0])).numpy()
    if op_type == "full_int_array":
        return np.array(list(attributes["value"].as_ints()), kind)
    shape = tuple(attributes["shape"].as_ints())
    check_size(*shape)
    if op_type == "full":
        return np.full(shape, attributes["value"].as_tensor().numpy().astype(kind), kind)
    return attributes["values"].as_tensor().numpy().astype(kind).reshape(shape)


class NotLowered(Exception):
    """An operator has no form in ONNX as it is used; the message says why."""


class PdOp:
    """An operator with its signature.

    Args:
        node: The node.
        operator: Its signature.
        emit: Knows what its operands have become.
    """

    def __init__(self, node: ir.Node, operator: Operator, emit: Emitter):
        self.node = node
        self.operator = operator
        self.emit = emit

    @cached_property
    def name(self) -> str:
        """The name of the operator, without the `_` of its in-place form."""
        return self.operator.name

    def original(self, argument: str) -> ir.Value | None:
        """The operand in the `pd_op` graph; None if it is missing."""
        index = self.operator.operand_index[argument]
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def get(self, argument: str) -> ir.Value | None:
        """What an operand has become; None if it is missing."""
        value = self.original(argument)
        return None if value is None else self.emit.lowered(value)

    def operand(self, argument: str) -> ir.Value:
        """The operand in the `pd_op` graph, which must be there."""
        value = self.original(argument)
        if value is None:
            raise NotLowered(f"it has no operand '{argument}'")
        return value

    def __getitem__(self, argument: str) -> ir.Value:
        return self.emit.lowered(self.operand(argument))

    def items(self, argument: str) -> list[ir.Value]:
        """What the items of a list have become; empty if it is missing."""
        value = self.original(argument)
        if value is None:
            return []
        found = self.emit.items(value)
        if found is None:
            raise NotLowered(f"its operand '{argument}' is no list of tensors")
        return found

    def originals(self, argument: str) -> list[ir.Value]:
        """The items of a list in the `pd_op` graph."""
        value = self.original(argument)
        producer = None if value is None else value.producer()
        if producer is None or producer.op_type != "combine":
            return []
        return list(operands(producer))

    def constant(self, argument: str) -> np.ndarray | None:
        """The elements of an operand that is known; None if it is computed or missing."""
        value = self.original(argument)
        return None if value is None else constant_of(value)

    def known_ints(self, argument: str) -> list[int] | None:
        """The elements of an operand or an attribute that is known; None if it is computed."""
        if argument in self.operator.operand_index:
            found = self.constant(argument)
            if found is None and self.original(argument) is None:
                default = cast("list[int] | None", self.operator.argument[argument].default_value())
                return None if default is None else list(default)
            return None if found is None else [int(item) for item in found.reshape(-1)]
        return list(self.attr(argument))

    def ints(self, argument: str) -> list[int]:
        """The elements of an operand or an attribute, which must be known."""
        found = self.known_ints(argument)
        if found is None:
            raise NotLowered(f"its '{argument}' is computed, and ONNX needs it known")
        return found

    def number(self, argument: str) -> float:
        """A number that must be known."""
        found = self.constant(argument)
        if found is None:
            raise NotLowered(f"its '{argument}' is computed, and ONNX needs it known")
        return found.reshape(-1)[0].item()

    def attr(self, name: str) -> Any:
        """An attribute, or its default."""
        argument = self.operator.argument[name]
        found = self.node.attributes.get(name)
        if found is None:
            default = argument.default_value()
            if default is None:
                raise NotLowered(f"it has no attribute '{name}'")
            return default
        kind = found.type.name
        if kind == "TENSOR":
            return found.as_tensor().numpy()
        value = found.value
        if kind in ("INTS", "FLOATS", "STRINGS"):
            return list(value)
        return bool(value) if argument.element == "bool" else value

    def shape(self, argument: str) -> tuple[int | None, ...] | None:
        """The extents of an operand, None where one is open; None if its rank is open."""
        return extents(self.original(argument))

    def known_shape(self, argument: str, start: int = 0, end: int | None = None) -> tuple[int, ...] | None:
        """The extents of an operand from one axis to another; None unless all of them are known."""
        shape = self.shape(argument)
        return None if shape is None or None in shape[start:end] else cast("tuple[int, ...]", shape[start:end])

    def ranked_shape(self, argument: str) -> tuple[int | None, ...]:
        """The extents of an operand, None where one is open; its rank must be known."""
        shape = self.shape(argument)
        if shape is None:
            raise NotLowered(f"the rank of its operand '{argument}' is not known")
        return shape

    def rank(self, argument: str) -> int:
        """The rank of an operand."""
        return len(self.ranked_shape(argument))

    def dtype(self, argument: str) -> ir.DataType:
        """The element type of an operand."""
        value = self.original(argument)
        if value is None or value.dtype is None:
            raise NotLowered(f"the element type of its operand '{argument}' is not known")
        return value.dtype

    def result_shape(self, index: int = 0) -> tuple[int | None, ...] | None:
        """The extents that the program declares of a result."""
        return extents(self.node.outputs[index])

    def result_dtype(self, index: int = 0) -> ir.DataType | None:
        """The element type that the program declares of a result."""
        return self.node.outputs[index].dtype

    def narrow(self, value: ir.Value, index: int = 0) -> ir.Value:
        """An int64 value as the integer type that the program declares of a result."""
        dtype = self.result_dtype(index)
        if dtype is None:
            raise NotLowered("the element type of its result is not known")
        return self.emit.narrow(value, dtype)

    def axis(self, number: int, argument: str) -> int:
        """An axis of an operand, counted from the front."""
        return number + self.rank(argument) if number < 0 else number


def extents(value: ir.Value | None) -> tuple[int | None, ...] | None:
    """The extents of a value, None where one is open; None if its rank is open."""
    if value is None or value.shape is None:
        return None
    return tuple(extent if isinstance(extent, int) else None for extent in value.shape)


def place_of(node: ir.Node) -> str:
    """Where a node is in its program, for messages."""
    parts = [f"'{node.name}'"]
    result = next((value.name for value in node.outputs if value.name), "")
    if result:
        parts.append(f"which gives '{result}'")
    if struct := node.metadata_props.get(STRUCT):
        parts.append(f"in layer {struct}")
    if place := node.metadata_props.get("paddle.place"):
        parts.append(f"{place}")
    if source := node.metadata_props.get(SOURCE):
        parts.append(f"made at {source}")
    return ", ".join(parts)
