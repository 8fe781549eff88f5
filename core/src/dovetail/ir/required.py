"""Accessors for fields that onnx-ir declares optional, where graph invariants guarantee them.

Each function raises a ValueError that names the value or node if the field is missing anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import onnx_ir as ir

_Part = TypeVar("_Part")


def _present(part: _Part | None, of: ir.Value | ir.Node, what: str) -> _Part:
    if part is None:
        raise ValueError(f"'{of.name}' has no {what}")
    return part


def name_of(part: ir.Value | ir.Node) -> str:
    """Return the name of a value or a node."""
    return _present(part.name, part, "name")


def shape_of(value: ir.Value) -> ir.Shape:
    """Return the shape of `value`; its extents may be symbols."""
    return _present(value.shape, value, "shape")


def dtype_of(value: ir.Value) -> ir.DataType:
    """Return the element type of `value`."""
    return _present(value.dtype, value, "element type")


def constant_of(value: ir.Value) -> ir.TensorProtocol:
    """Return the tensor of an initializer."""
    return _present(value.const_value, value, "constant tensor")


def producer_of(value: ir.Value) -> ir.Node:
    """Return the node that defines `value`."""
    return _present(value.producer(), value, "producer")


def input_of(node: ir.Node, index: int) -> ir.Value:
    """Return input `index` of `node`."""
    value = node.inputs[index]
    if value is None:
        raise ValueError(f"input {index} of {node.name or node.op_type} is absent")
    return value


def graph_of(node: ir.Node) -> ir.Graph:
    """Return the graph that contains `node`, which must not be detached."""
    if node.graph is None:
        raise ValueError(f"{node.name or node.op_type} is in no graph")
    return node.graph
