"""Names of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import onnx_ir as ir


def node_name(node: ir.Node) -> str:
    """Return the name of `node`, which every node of a compiled model has."""
    return cast("str", node.name)
