"""Opsets: the imported version of the default domain, and definitions of operators in two versions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from dovetail_onnx.signatures import find_signature

from dovetail_transforms.canonicalize.names import all_nodes
from dovetail_transforms.lowering.schemas import is_default

if TYPE_CHECKING:
    import onnx


_OLDEST_IR_VERSION = 4


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


@cache
def _definition(operator: str, version: int) -> int | None:
    found = find_signature("", operator, version)
    return found.version if found is not None else None


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
