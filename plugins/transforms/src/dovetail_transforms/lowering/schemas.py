"""Queries on onnx's schemas: operator versions, and whether one accepts a node as written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dovetail.installed import package_folder
from dovetail_onnx.signatures import find_signature
from dovetail_onnx.type_check import node_problem

from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from dovetail_onnx.signatures import Signature

    from dovetail_transforms.rewriting import Replacement


T = TypeVar("T")


def rows_by_version(package: str, row: Callable[..., T]) -> Mapping[tuple[str, int], T]:
    """Read `table.yaml` of a package, and return its rows by operator and version."""
    import yaml

    text = package_folder(package).joinpath("table.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in Python is ten times as slow
    return {
        (op_type, version): row(**entry)
        for op_type, versions in yaml.load(text, Loader=loader).items()
        for version, entry in versions.items()
    }


def is_default(domain: str) -> bool:
    """Check whether `domain` is one of the two names of the default domain."""
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
    """Write out attributes left at their defaults, where the defaults were different in version `before`."""
    import onnx_ir as ir

    new, old = _signature(node.op_type, version), _signature(node.op_type, before)
    for name, value in new.defaults.items():
        if name not in node.attributes and old.defaults.get(name, value) != value:
            node.attributes[name] = ir.convenience.convert_attribute(name, cast(Any, value))


def why_not_as_written(node: ir.Node, before: int) -> str:
    """Return why version `before` of its operator does not accept `node` as written; empty if it does."""
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
    found = find_signature("", op_type, version)
    assert found is not None, f"there is no {op_type} in opset {version}"
    return found


@cache
def function_body(op_type: str, opset: int) -> Rewrite:
    """Return the rewrite that replaces an operator, as of `opset`, by its body."""

    def expanded(op: Replacement, node: ir.Node) -> list[ir.Value | None]:
        return _expanded(op, node, opset)

    def check(node: ir.Node) -> str:
        return "" if _function_of(node, opset) is not None else "ONNX defines no body for it with these inputs"

    return Rewrite("function-body", lambda op: op.any_of(op_type)(...), expanded, check)


def _function_of(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Return the body for this node, in the oldest version that onnx has; None if it has none."""
    import onnx
    import onnx_ir as ir

    schema: Any = schema_of(node.op_type, opset)  # onnx's stub omits the function members
    if versions := schema.function_opset_versions:
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(min(versions)))
    versions = schema.context_dependent_function_opset_versions
    if not versions or any(value is not None and value.type is None for value in node.inputs):
        return None
    proto = ir.to_proto(node)
    types = [onnx.TypeProto() if value is None else _type_of(value) for value in node.inputs]
    body = schema.get_context_dependent_function_with_opset_version(
        min(versions), proto.SerializeToString(), [kind.SerializeToString() for kind in types]
    )
    return onnx.FunctionProto.FromString(body) if body else None


def _type_of(value: ir.Value) -> onnx.TypeProto:
    import onnx_ir as ir

    assert value.type is not None
    kind = ir.to_proto(value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(kind, value.shape)
    return kind


def _expanded(op: Replacement, node: ir.Node, opset: int) -> list[ir.Value | None]:
    """Build the nodes of the body. Constants become initializers, so that rules for axes and sizes recognize them."""
    import onnx_ir as ir

    function, schema = _function_of(node, opset), schema_of(node.op_type, opset)
    assert function is not None and schema is not None
    op.version = next(entry.version for entry in function.opset_import if entry.domain in ("", "ai.onnx"))
    values: dict[str, ir.Value | None] = {"": None}
    values.update(dict.fromkeys(function.input))
    values.update(zip(function.input, node.inputs))
    given = {name: ir.to_proto(attribute) for name, attribute in node.attributes.items()}
    for name, described in schema.attributes.items():
        if name not in given and described.default_value.name:
            given[name] = described.default_value
    for inner in function.node:
        held = _bound_attributes(inner, given)
        if inner.op_type == "Constant":
            # Without an attribute, it is the default of an optional attribute of the function.
            tensor = _tensor_of(held) if held else None
            values[inner.output[0]] = None if tensor is None else op.constant(tensor, inner.output[0])
            continue
        inputs = [values[name] for name in inner.input]
        results = op.make(inner.op_type, inputs, len(inner.output), inner.domain, **held)
        values.update(zip(inner.output, [results] if len(inner.output) == 1 else results))
    return [values.get(name) for name in function.output][: len(node.outputs)]


def _bound_attributes(proto: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> dict[str, ir.Attr]:
    """Return the attributes of a node of the body, with references resolved to the function's attributes."""
    import onnx
    import onnx_ir as ir

    held: dict[str, ir.Attr] = {}
    for attribute in proto.attribute:
        source = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if source is not None:
            bound = onnx.AttributeProto()
            bound.CopyFrom(source)
            bound.name = attribute.name
            held[attribute.name] = ir.serde.deserialize_attribute(bound)
    return held


def _tensor_of(held: dict[str, ir.Attr]) -> ir.TensorProtocol | None:
    """Return the content of a Constant with these attributes."""
    import onnx_ir as ir

    node = ir.Node("", "Constant", [], list(held.values()))
    return ir.convenience.get_const_tensor(node.outputs[0])
