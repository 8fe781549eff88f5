"""Identity of nodes: by output name in a plan file, by structure across exports."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model


_KEY = "dovetail.key"


def walk(model: Model) -> Iterator[tuple[str, ir.Node]]:
    """Yield every node with the path of its body (`""` for the main graph), in graph order."""
    return ((path, node) for path, graph in model.graphs() for node in graph)


def identity(path: str, node: ir.Node) -> str:
    """Return the first output's name with the body path, which survives passes that rename or insert nodes."""
    return f"{path}/{key_of(node)}" if path else key_of(node)


def key_of(node: ir.Node) -> str:
    """Return the name of a node in every round of decisions: that of its first output when it was decided on.

    Passes that carry out a decision rename values (the name of a graph output moves to the last conversion after it),
    so nodes keep their names from then on; see `keep_keys`.
    """
    return decided_key(node) or next((value.name for value in node.outputs if value.name), node.name or node.op_type)


def decided_key(node: ir.Node) -> str:
    """Return the key recorded when the node was decided on; empty for nodes added later, such as conversions."""
    return str(node.meta.data.get(_KEY, ""))


def set_key(node: ir.Node, key: str) -> None:
    """Set the key of a node that replaces others; rejections of it are then not those of the node that it replaces."""
    node.meta[_KEY] = key


def keep_keys(model: Model) -> None:
    """Record the key of every node, so that it survives renaming. Copies of a node keep it."""
    for _, node in walk(model):
        node.meta[_KEY] = key_of(node)


def keep_key(new: ir.Node, node: ir.Node) -> None:
    """Copy the key of `node` to its replacement `new`; if `node` has no key, remove that of `new`."""
    key = decided_key(node)
    if key:
        new.meta[_KEY] = key
    else:
        new.meta.pop(_KEY, None)


def operator_name(domain: str, op_type: str) -> str:
    """Return the operator with its domain, as in selectors: `Conv`, `com.acme::FusedMlp`."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"


def structural_keys(model: Model) -> dict[int, str]:
    """Return a hash per node, by `id(node)`, of operator, attributes, depth, and the hashes of its producers.

    Two exports of one model have the same keys even if names differ. For constants, only type and shape count. Nodes
    with equal hashes are numbered in graph order.
    """
    hashes: dict[int, str] = {}
    depth: dict[int, int] = {}
    seen: dict[str, int] = {}
    for _, node in walk(model):
        parts = [node.domain, node.op_type, str(len(node.outputs))]
        level = 0
        for value in node.inputs:
            if value is None:
                parts.append("-")
            elif (producer := value.producer()) is not None and id(producer) in hashes:
                parts.append(f"{hashes[id(producer)]}:{value.index()}")
                level = max(level, depth[id(producer)] + 1)
            else:
                parts.append(f"{value.dtype}{value.shape}")
        if attributes := node.attributes.data:  # the wrapped dict: this runs for every node, and the wrapper is slow
            parts += [f"{a.name}={_attribute(a)}" for a in sorted(attributes.values(), key=lambda a: a.name)]
        digest = hashlib.blake2b("|".join([*parts, str(level)]).encode(), digest_size=6).hexdigest()
        repeat = seen.get(digest, 0)
        seen[digest] = repeat + 1
        depth[id(node)] = level
        hashes[id(node)] = f"{digest}.{repeat}" if repeat else digest
    return hashes


def _attribute(attribute: ir.Attr) -> str:
    if attribute.is_ref():
        return f"@{attribute.ref_attr_name}"
    if attribute.type.name in ("GRAPH", "GRAPHS"):
        return "body"
    if attribute.type.name == "TENSOR":
        return f"{attribute.value.dtype}{attribute.value.shape}"
    if isinstance(attribute.value, array):  # a long list, which is slow to write out
        return hashlib.blake2b(attribute.value.tobytes(), digest_size=6).hexdigest()
    return repr(attribute.value)
