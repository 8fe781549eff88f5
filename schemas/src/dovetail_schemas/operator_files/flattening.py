"""Decompositions without calls of others: onnx's inliner cannot convert nested functions to another opset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


Functions = Mapping[tuple[str, str], "onnx.FunctionProto"]


def flattened(function: onnx.FunctionProto, functions: Functions) -> onnx.FunctionProto:
    """A function in which calls of other functions are replaced by their nodes.

    Args:
        function: The function, which stays as it is.
        functions: The functions that it may call, by domain and name; each writes its default attributes.

    Raises:
        ValueError: A function calls itself, by way of others.
    """
    import onnx

    made = onnx.FunctionProto()
    made.CopyFrom(function)
    del made.node[:]
    made.node.extend(_nodes(function, functions, (), "", {}, {}))
    return made


def _nodes(
    function: onnx.FunctionProto,
    functions: Functions,
    calls: tuple[tuple[str, str], ...],
    prefix: str,
    names: Mapping[str, str],
    attributes: Mapping[str, onnx.AttributeProto],
) -> Iterator[onnx.NodeProto]:
    """The nodes of a function, called with these names for its inputs and outputs, and with these attributes."""
    import onnx

    own = (function.domain, function.name)
    if own in calls:
        path = " > ".join(name for _, name in (*calls[calls.index(own) :], own))
        raise ValueError(f"composite: {path} call each other in a circle")

    def renamed(name: str) -> str:
        return names.get(name, f"{prefix}{name}") if name else ""

    for index, node in enumerate(function.node):
        called = functions.get((node.domain, node.op_type))
        if called is None:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            del copy.input[:], copy.output[:], copy.attribute[:]
            copy.input.extend(map(renamed, node.input))
            copy.output.extend(map(renamed, node.output))
            copy.attribute.extend(_bound(node, attributes) if calls else node.attribute)
            yield copy
            continue
        inner = {name: renamed(given) for name, given in zip(called.input, node.input, strict=False)}
        inner |= {name: renamed(given) for name, given in zip(called.output, node.output, strict=False)}
        given = {one.name: one for one in called.attribute_proto}
        given |= {one.name: one for one in (_bound(node, attributes) if calls else node.attribute)}
        yield from _nodes(called, functions, (*calls, own), f"{prefix}{node.op_type}_{index}_", inner, given)


def _bound(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> Iterator[onnx.AttributeProto]:
    """The attributes of a node in a called function, with what the call gives for references."""
    import onnx

    for one in node.attribute:
        if not one.ref_attr_name:
            yield one
            continue
        given = attributes.get(one.ref_attr_name)
        if given is not None:
            copy = onnx.AttributeProto()
            copy.CopyFrom(given)
            copy.name = one.name
            yield copy
