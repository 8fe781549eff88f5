"""Opsets: raise a model to a newer version of the default domain, and compare operator versions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from dovetail_onnx.signatures import find

from dovetail_transforms.canonicalize.names import NodeNames, all_nodes
from dovetail_transforms.lowering.schemas import is_default

if TYPE_CHECKING:
    import onnx


_SCAN_WITHOUT_BATCH = 9
_OLDEST_IR_VERSION = 4  # that the converter accepts


def default_version(imports: Iterable[onnx.OperatorSetIdProto]) -> int | None:
    """Return the imported version of the default domain, or None."""
    return next((entry.version for entry in imports if is_default(entry.domain)), None)


def set_default_version(holder: onnx.ModelProto | onnx.FunctionProto, version: int) -> None:
    """Set the imported version of the default domain."""
    for entry in holder.opset_import:
        if is_default(entry.domain):
            entry.version = version
            return
    holder.opset_import.add(domain="", version=version)


def same_definitions(nodes: Iterable[onnx.NodeProto], one: int, other: int) -> bool:
    """Check whether all operators of the default domain have the same definition in both versions."""
    operators = {node.op_type for node in nodes if is_default(node.domain)}
    return all(_definition(operator, one) == _definition(operator, other) is not None for operator in operators)


def converter_misreads(nodes: Iterable[onnx.NodeProto], version: int) -> bool:
    """Check whether onnx's converter silently changes the meaning of a node: Scan before opset 9 has a batch axis."""
    return version < _SCAN_WITHOUT_BATCH and any(node.op_type == "Scan" and is_default(node.domain) for node in nodes)


@cache
def _definition(operator: str, version: int) -> int | None:
    found = find("", operator, version)
    return found.version if found is not None else None


def raise_opset(proto: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Convert the nodes of `proto` to a newer version of the default domain with onnx's converter.

    Local functions are not converted, and nothing is if no operator changed.

    Raises:
        Exception: Whatever the C++ converter throws.
    """
    import onnx.version_converter

    present = default_version(proto.opset_import)
    if present is not None and same_definitions(all_nodes(proto.graph), present, version):
        set_default_version(proto, version)
        proto.ir_version = max(proto.ir_version, ir_version_of(present), _OLDEST_IR_VERSION)
        return proto
    names = NodeNames(proto.graph)
    functions = list(proto.functions)
    del proto.functions[:]
    try:
        released = ir_version_of(present) if present is not None else _OLDEST_IR_VERSION
        proto.ir_version = max(proto.ir_version, released, _OLDEST_IR_VERSION)
        converted = onnx.version_converter.convert_version(proto, version)
    finally:
        proto.functions.extend(functions)
    # The converter drops node names, functions and metadata.
    names.restore(converted.graph, unnamed=True)
    converted.functions.extend(functions)
    del converted.metadata_props[:]
    converted.metadata_props.extend(proto.metadata_props)
    return converted


def ir_version_of(opset: int) -> int:
    """Return the IR version that was released with a version of the default domain."""
    import onnx.helper

    return onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset), _OLDEST_IR_VERSION)


def drop_unused_imports(proto: onnx.ModelProto) -> list[str]:
    """Remove imports of domains that no node and no function uses; the default domain always stays.

    Some engines refuse models that import unknown domains, even unused ones.

    Returns:
        The dropped domains.
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
