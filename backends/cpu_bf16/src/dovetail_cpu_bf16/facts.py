"""Facts about nodes that the limits of `cpu_bf16.yaml` ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plan.placement import kind_of

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["int64_data"]

_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


def int64_data(node: ir.Node) -> bool:
    """Whether a data node computes with 64-bit integers, which OpenVINO's CPU plugin does in 32 bits.

    A port counts when its type is free and the same as that of an output (`T` of Add, not `Tind` of Gather), and in
    a Cast or a comparison. Indices and shapes are small by nature, so nodes of those kinds never count.
    """
    if kind_of(node) != "data":
        return False
    inputs = [_wide(value) for value in node.inputs]
    outputs = [_wide(value) for value in node.outputs]
    if not any((*inputs, *outputs)):
        return False
    if node.domain == "" and (node.op_type in ("Cast", "CastLike") or node.op_type in _COMPARISONS):
        return True
    return _shares_wide_type(node, inputs, outputs)


def _shares_wide_type(node: ir.Node, inputs: list[bool], outputs: list[bool]) -> bool:
    """Whether one type parameter of the schema is 64 bits wide on both sides of the node."""
    import onnx

    try:
        version = node.version or (node.graph.opset_imports.get(node.domain) if node.graph is not None else None)
        schema = onnx.defs.get_schema(node.op_type, version or onnx.defs.onnx_opset_version(), node.domain)
    except onnx.defs.SchemaError:
        return any(inputs) and any(outputs)  # an unknown operator: assume that it computes with what it is given
    free = {constraint.type_param_str for constraint in schema.type_constraints}
    taken = {type_ for type_, wide in zip(_types(schema.inputs, len(inputs)), inputs) if wide}
    given = {type_ for type_, wide in zip(_types(schema.outputs, len(outputs)), outputs) if wide}
    return bool(taken & given & free)


def _types(ports, count: int) -> list[str]:
    """The type strings of `count` ports; the last formal port repeats where it is variadic."""
    return [ports[min(i, len(ports) - 1)].type_str for i in range(count)] if ports else []


def _wide(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.name in ("INT64", "UINT64")
