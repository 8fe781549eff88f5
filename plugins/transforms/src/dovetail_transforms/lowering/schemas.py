"""What onnx's schemas say about versions of operators, and whether one takes a node as it is written."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from dovetail_onnx.signatures import find
from dovetail_onnx.type_check import node_problem

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from dovetail_onnx.signatures import Signature


def is_default(domain: str) -> bool:
    """Whether `domain` is one of the two names of the default domain."""
    return domain in ("", "ai.onnx")


@cache
def schema_of(op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    """Return the schema of an operator of the default domain that is valid at `opset`; None if it has none there."""
    import onnx

    try:
        return onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None


@cache
def version_of(op_type: str, opset: int) -> int | None:
    """Return the version of an operator that is valid at `opset`; None if it is newer, or unknown."""
    schema = schema_of(op_type, opset)
    return None if schema is None else schema.since_version


def write_changed_defaults(node: ir.Node, version: int, before: int) -> None:
    """Write out attributes that are left to their defaults, where these were others in version `before`."""
    import onnx_ir as ir

    new, old = _signature(node.op_type, version), _signature(node.op_type, before)
    for name, value in new.defaults.items():
        if name not in node.attributes and old.defaults.get(name, value) != value:
            node.attributes[name] = ir.convenience.convert_attribute(name, cast(Any, value))


def why_not_as_written(node: ir.Node, before: int) -> str:
    """Return why version `before` of its operator does not take `node` as it is written; empty if it does."""
    signature = _signature(node.op_type, before)
    for name, attribute in node.attributes.items():
        kind = signature.attribute_types.get(name)
        if kind is None:
            return f"opset {before} has no attribute {name}"
        if kind != attribute.type.value:
            return f"attribute {name} has another type in opset {before}"
    if missing := sorted(signature.required - set(node.attributes)):
        return f"opset {before} wants the attribute {missing[0]}"
    for index, value in enumerate(node.inputs):
        port = signature.input(index)
        if port is not None and value is None and not (port.optional or port.variadic):
            return f"opset {before} wants the input {port.name}"
    for value in (*node.inputs, *node.outputs):
        if value is not None and value.name and value.type is None:
            return f"the type of '{value.name}' is unknown"
    written, node.version = node.version, before
    problem = node_problem(node, {"": before})
    node.version = written
    return "" if problem is None else problem.partition(f"'{node.name}'")[2].lstrip(": ")


@cache
def _signature(op_type: str, version: int) -> Signature:
    found = find("", op_type, version)
    assert found is not None, f"there is no {op_type} in opset {version}"
    return found
