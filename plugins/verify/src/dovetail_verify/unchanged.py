"""Whether two models state the same computation, node by node, so that there is nothing to compare by running them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


_READ_UP_TO = 1 << 16  # bytes; larger tensors are equal only if they are one object


def is_unchanged(source: Model, other: Model) -> bool:
    """Check whether `other` has the nodes, names, constants and types of inputs and outputs that `source` has.

    Descriptions, and types of values between the nodes, do not count. Models with bodies or functions are never said to
    be the same.
    """
    one, two = source.ir, other.ir
    if one.functions or two.functions or len(one.graph) != len(two.graph):
        return False
    if not (_same_ends(one.graph.inputs, two.graph.inputs) and _same_ends(one.graph.outputs, two.graph.outputs)):
        return False
    if not all(_same_nodes(first, second) for first, second in zip(one.graph, two.graph, strict=True)):
        return False
    if any(one.opset_imports.get(domain) != two.opset_imports.get(domain) for domain in _domains(one.graph)):
        return False
    weights, others = one.graph.initializers, two.graph.initializers
    return weights.keys() == others.keys() and all(
        _same_tensors(value.const_value, others[name].const_value) for name, value in weights.items()
    )


def _domains(graph: ir.Graph) -> set[str]:
    return {node.domain for node in graph}


def _same_ends(values: Sequence[ir.Value], others: Sequence[ir.Value]) -> bool:
    return [(value.name, value.type, value.shape) for value in values] == [
        (value.name, value.type, value.shape) for value in others
    ]


def _same_nodes(node: ir.Node, other: ir.Node) -> bool:
    if (node.op_type, node.domain, node.overload) != (other.op_type, other.domain, other.overload):
        return False
    if _names(node.inputs) != _names(other.inputs) or _names(node.outputs) != _names(other.outputs):
        return False
    pairs = zip_longest(node.attributes.values(), other.attributes.values())
    return all(one is not None and two is not None and _same_attributes(one, two) for one, two in pairs)


def _names(values: Sequence[ir.Value | None]) -> list[str | None]:
    return [None if value is None else value.name for value in values]


def _same_attributes(one: ir.Attr, two: ir.Attr) -> bool:
    if one is two:
        return True
    if one.name != two.name or one.type != two.type or one.is_ref() or two.is_ref():
        return False
    if one.type.name == "TENSOR":
        return _same_tensors(one.value, two.value)
    if one.type.name in _PLAIN:
        # Numbers that differ only in their sign, or are none, count as they are written.
        return one.value is two.value or repr(one.value) == repr(two.value)
    return False


_PLAIN = frozenset({"FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS"})


def _same_tensors(one: ir.TensorProtocol | None, two: ir.TensorProtocol | None) -> bool:
    if one is two:
        return True
    if one is None or two is None or one.dtype != two.dtype or one.shape != two.shape:
        return False
    if one.dtype.name == "STRING" or one.nbytes > _READ_UP_TO:
        return False
    return one.tobytes() == two.tobytes()
