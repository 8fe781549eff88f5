"""The digest of a result: requests that differ in an option often give the same model, which is measured once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from dovetail.ir import all_nodes
from dovetail.planning import get_placement

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


NO_ENGINES: Mapping[str, Sequence[str]] = MappingProxyType({})


def result_digest(model: Model, engines: Mapping[str, Sequence[str]] = NO_ENGINES) -> str:
    """Hash what a compiled model computes and where: nodes, placements, constants; not what it was asked for.

    Constants are read one at a time.

    Args:
        model: The compiled model.
        engines: The engines of each backend, in order of preference; those of backends without nodes do not count.
    """
    found = hashlib.sha256(repr(sorted(model.graph.opset_imports.items())).encode())
    used = {placement.backend for node in model.graph if (placement := get_placement(node)) is not None}
    found.update(repr(sorted((name, tuple(engines.get(name, ()))) for name in used)).encode())
    for value in (*model.graph.inputs, *model.graph.outputs):
        found.update(f"{value.name} {value.dtype} {value.shape}".encode())
    for node in all_nodes(model.graph):
        placement = get_placement(node)
        where = "" if placement is None else f"{placement.backend} {placement.region} {placement.precision}"
        names = [[value.name if value is not None else "" for value in ends] for ends in (node.inputs, node.outputs)]
        found.update(f"{node.domain} {node.op_type} {names} {where}".encode())
        for name, attribute in sorted(node.attributes.items()):
            found.update(name.encode() + _content(attribute))
    for name, value in sorted(model.graph.initializers.items()):
        found.update(name.encode())
        if value.const_value is not None:
            found.update(_tensor(value.const_value))
    return found.hexdigest()


def _content(attribute: ir.Attr) -> bytes:
    """Return the content of an attribute; bodies are hashed node by node with the rest."""
    kind = attribute.type.name
    if kind in ("GRAPH", "GRAPHS"):
        return kind.encode()
    if kind == "TENSOR":
        return _tensor(attribute.as_tensor())
    return repr(attribute.value).encode()


def _tensor(tensor: ir.TensorProtocol) -> bytes:
    digest = hashlib.sha256(f"{tensor.dtype} {list(tensor.shape)}".encode())
    digest.update(tensor.tobytes())
    return digest.digest()
