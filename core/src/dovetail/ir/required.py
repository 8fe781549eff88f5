"""Parts of values and nodes that onnx-ir declares optional, where the rules of a graph guarantee them.

Each function raises a ValueError that names the value or the node if the part is missing all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import onnx_ir as ir

_Part = TypeVar("_Part")


def _present(part: _Part | None, value: ir.Value, what: str) -> _Part:
    if part is None:
        raise ValueError(f"'{value.name}' has no {what}")
    return part


def name_of(value: ir.Value) -> str:
    """Return the name of `value`."""
    return _present(value.name, value, "name")


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
    """Return the node that computes `value`."""
    return _present(value.producer(), value, "producer")


def input_of(node: ir.Node, index: int) -> ir.Value:
    """Return input `index` of `node`."""
    value = node.inputs[index]
    if value is None:
        raise ValueError(f"input {index} of {node.name or node.op_type} is absent")
    return value


def graph_of(node: ir.Node) -> ir.Graph:
    """Return the graph that holds `node`, which was not taken out."""
    if node.graph is None:
        raise ValueError(f"{node.name or node.op_type} is in no graph")
    return node.graph
