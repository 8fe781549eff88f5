"""View of a `pd_op` operator for lowering rules: arguments by name, with known values and shapes."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from dovetail.ir import dtype_of

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.pd_graph import BUILTIN, PD_OP, SOURCE, STRUCT, operands
from dovetail_paddle.signatures import OpSignature

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


_MOST = 1 << 28  # elements

CONSTANTS = frozenset(("full", "full_int_array", "assign_value"))
"""Operators without inputs whose result is constant."""


def constant_of(value: ir.Value) -> np.ndarray | None:
    """Return the elements of a parameter or of a constant operator's result, else None.

    A list of single-element constants counts as the list of their elements.
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
    """Check the size of a constant.

    Raises:
        ValueError: The constant has too many elements, or a negative extent.
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


class OpNotLowered(Exception):
    """Raised if an operator cannot be lowered to ONNX as used; the message gives the reason."""


class PdOp:
    """An operator with its signature.

    Args:
        node: The node.
        operator: Its signature.
        emit: The emitter with its lowered operands.
    """

    def __init__(self, node: ir.Node, operator: OpSignature, emit: GraphEmitter):
        self.node = node
        self.operator = operator
        self.emit = emit

    @cached_property
    def name(self) -> str:
        """Name of the operator, without the `_` of its in-place form."""
        return self.operator.name

    def original(self, argument: str) -> ir.Value | None:
        """Return an operand in the `pd_op` graph; None if missing."""
        index = self.operator.operand_index[argument]
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def get(self, argument: str) -> ir.Value | None:
        """Return a lowered operand; None if missing."""
        value = self.original(argument)
        return None if value is None else self.emit.lowered(value)

    def operand(self, argument: str) -> ir.Value:
        """Return an operand in the `pd_op` graph, which must exist."""
        value = self.original(argument)
        if value is None:
            raise OpNotLowered(f"it has no operand '{argument}'")
        return value

    def __getitem__(self, argument: str) -> ir.Value:
        return self.emit.lowered(self.operand(argument))

    def items(self, argument: str) -> list[ir.Value]:
        """Return the lowered items of a list; empty if missing."""
        value = self.original(argument)
        if value is None:
            return []
        found = self.emit.items(value)
        if found is None:
            raise OpNotLowered(f"its operand '{argument}' is no list of tensors")
        return found

    def originals(self, argument: str) -> list[ir.Value]:
        """Return the items of a list in the `pd_op` graph."""
        value = self.original(argument)
        producer = None if value is None else value.producer()
        if producer is None or producer.op_type != "combine":
            return []
        return list(operands(producer))

    def constant(self, argument: str) -> np.ndarray | None:
        """Return the elements of a constant operand; None if computed or missing."""
        value = self.original(argument)
        return None if value is None else constant_of(value)

    def known_ints(self, argument: str) -> list[int] | None:
        """Return the integers of a constant operand or an attribute; None if computed."""
        if argument in self.operator.operand_index:
            found = self.constant(argument)
            if found is None and self.original(argument) is None:
                default = cast("list[int] | None", self.operator.argument[argument].default_value())
                return None if default is None else list(default)
            return None if found is None else [int(item) for item in found.reshape(-1)]
        return list(self.attr(argument))

    def ints(self, argument: str) -> list[int]:
        """Return the integers of an operand or an attribute, which must be constant."""
        found = self.known_ints(argument)
        if found is None:
            raise OpNotLowered(f"its '{argument}' is computed, and ONNX needs it known")
        return found

    def number(self, argument: str) -> float:
        """Return a number, which must be constant."""
        found = self.constant(argument)
        if found is None:
            raise OpNotLowered(f"its '{argument}' is computed, and ONNX needs it known")
        return found.reshape(-1)[0].item()

    def attr(self, name: str) -> Any:
        """Return an attribute, or its default."""
        argument = self.operator.argument[name]
        found = self.node.attributes.get(name)
        if found is None:
            default = argument.default_value()
            if default is None:
                raise OpNotLowered(f"it has no attribute '{name}'")
            return default
        kind = found.type.name
        if kind == "TENSOR":
            return found.as_tensor().numpy()
        value = found.value
        if kind in ("INTS", "FLOATS", "STRINGS"):
            return list(value)
        return bool(value) if argument.element == "bool" else value

    def shape(self, argument: str) -> tuple[int | None, ...] | None:
        """Return the extents of an operand, None for an open one; None if the rank is unknown."""
        return extents(self.original(argument))

    def known_shape(self, argument: str, start: int = 0, end: int | None = None) -> tuple[int, ...] | None:
        """Return a range of an operand's extents; None unless all of them are known."""
        shape = self.shape(argument)
        return None if shape is None or None in shape[start:end] else cast("tuple[int, ...]", shape[start:end])

    def ranked_shape(self, argument: str) -> tuple[int | None, ...]:
        """Return the extents of an operand of known rank, None for an open one."""
        shape = self.shape(argument)
        if shape is None:
            raise OpNotLowered(f"the rank of its operand '{argument}' is not known")
        return shape

    def rank(self, argument: str) -> int:
        """Return the rank of an operand."""
        return len(self.ranked_shape(argument))

    def dtype(self, argument: str) -> ir.DataType:
        """Return the element type of an operand."""
        value = self.original(argument)
        if value is None or value.dtype is None:
            raise OpNotLowered(f"the element type of its operand '{argument}' is not known")
        return value.dtype

    def result_shape(self, index: int = 0) -> tuple[int | None, ...] | None:
        """Return the declared extents of a result."""
        return extents(self.node.outputs[index])

    def result_dtype(self, index: int = 0) -> ir.DataType | None:
        """Return the declared element type of a result."""
        return self.node.outputs[index].dtype

    def retype(self, index: int, dtype: ir.DataType, shape: Sequence[int | None] = ()) -> None:
        """Correct the declared type of a result, also as an output of the model."""
        import onnx_ir as ir

        result = self.node.outputs[index]
        fetched = [use.node.outputs[0] for use in result.uses() if use.node.op_type == "fetch"]
        for value in (result, *fetched):
            value.type, value.shape = ir.TensorType(dtype), ir.Shape(shape)

    def narrow(self, value: ir.Value, index: int = 0) -> ir.Value:
        """Cast an int64 value to the declared integer type of a result."""
        dtype = self.result_dtype(index)
        if dtype is None:
            raise OpNotLowered("the element type of its result is not known")
        return self.emit.narrow(value, dtype)

    def axis(self, number: int, argument: str) -> int:
        """Normalize an axis of an operand to a nonnegative index."""
        return number + self.rank(argument) if number < 0 else number


def extents(value: ir.Value | None) -> tuple[int | None, ...] | None:
    """Return the extents of a value, None for an open one; None if the rank is unknown."""
    if value is None or value.shape is None:
        return None
    return tuple(extent if isinstance(extent, int) else None for extent in value.shape)


def place_of(node: ir.Node) -> str:
    """Return the position of a node in its program, for messages."""
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
