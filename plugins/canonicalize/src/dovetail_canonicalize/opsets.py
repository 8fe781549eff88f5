"""Opsets: raising a model to a newer version of the default domain, and telling what a version changes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from dovetail.ir.signatures import find

from dovetail_canonicalize.names import NodeNames, all_nodes

if TYPE_CHECKING:
    import onnx

__all__ = [
    "converter_misreads", "default_version", "drop_unused_imports", "ir_version_of", "is_default", "raised",
    "same_definitions", "set_default_version",
]  # fmt: skip

_SCAN_WITHOUT_BATCH = 9
_OLDEST_IR_VERSION = 4  # of what the converter reads


def is_default(domain: str) -> bool:
    """Whether `domain` is the default domain, which has two names."""
    return domain in ("", "ai.onnx")


def default_version(imports: Iterable[onnx.OperatorSetIdProto]) -> int | None:
    """The version of the default domain that is imported, or None."""
    return next((entry.version for entry in imports if is_default(entry.domain)), None)


def set_default_version(holder: onnx.ModelProto | onnx.FunctionProto, version: int) -> None:
    """Import the default domain in this version."""
    for entry in holder.opset_import:
        if is_default(entry.domain):
            entry.version = version
            return
    holder.opset_import.add(domain="", version=version)


def same_definitions(nodes: Iterable[onnx.NodeProto], one: int, other: int) -> bool:
    """Whether every node of the default domain means the same in both versions."""
    operators = {node.op_type for node in nodes if is_default(node.domain)}
    return all(_definition(operator, one) == _definition(operator, other) is not None for operator in operators)


def converter_misreads(nodes: Iterable[onnx.NodeProto], version: int) -> bool:
    """Whether onnx's converter silently changes what a node of this version means: the batch axis of the first Scan."""
    return version < _SCAN_WITHOUT_BATCH and any(node.op_type == "Scan" and is_default(node.domain) for node in nodes)


@cache
def _definition(operator: str, version: int) -> int | None:
    found = find("", operator, version)
    return found and found.version


def raised(proto: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """`proto` with its nodes brought to a newer version of the default domain by onnx's converter.

    Local functions stay as they are.

    Raises:
        Exception: Whatever the converter's C++ side throws.
    """
    import onnx.version_converter

    present = default_version(proto.opset_import)
    names = NodeNames(proto.graph)
    functions = list(proto.functions)
    del proto.functions[:]
    try:
        proto.ir_version = max(proto.ir_version, ir_version_of(present), _OLDEST_IR_VERSION)
        converted = onnx.version_converter.convert_version(proto, version)
    finally:
        proto.functions.extend(functions)
    # The converter keeps none of these.
    names.give_back(converted.graph, unnamed=True)
    converted.functions.extend(functions)
    del converted.metadata_props[:]
    converted.metadata_props.extend(proto.metadata_props)
    return converted


def ir_version_of(opset: int) -> int:
    """The IR version that came with a version of the default domain."""
    import onnx.helper

    return onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset), _OLDEST_IR_VERSION)


def drop_unused_imports(proto: onnx.ModelProto) -> list[str]:
    """Remove the imports of domains that no node and no function is of; the default domain always stays.

    Some engines refuse a model that imports a domain they do not know, whether it is used or not.

    Returns:
        The names of the domains that were dropped.
    """
    used = {node.domain for node in all_nodes(proto.graph)} | {"", "ai.onnx"}
    for function in proto.functions:
        used.add(function.domain)
        used.update(node.domain for node in function.node)
    kept = [entry for entry in proto.opset_import if entry.domain in used]
    dropped = [entry.domain for entry in proto.opset_import if entry.domain not in used]
    if dropped:
        del proto.opset_import[:]
        proto.opset_import.extend(kept)
    return dropped
