"""The scope of a node: which module of the source program it was exported from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

_NAMES = "pkg.torch.onnx.name_scopes"
"""Property of a node in files of PyTorch's exporter: a list of the modules around it, each with its whole path."""

_LAYER = "paddle.struct_name"
"""Property of a node that was translated from a program of Paddle: the classes of the layers around it."""

_NO_MODULE = "_empty_nn_module_stack"
"""Begins what PyTorch's exporter writes for nodes outside of modules, such as arithmetic of shapes."""

_QUOTED = re.compile(r"'([^']*)'")
_DEEPEST = 12


def scope_of(node: ir.Node | None) -> str:
    """Return the path of the module that a node comes from: `model/layers.0/self_attn`; empty if the file has none.

    Exporters that write the path into the name of a node need no property: `/model/layers.0/self_attn/MatMul`.
    """
    if node is None:
        return ""
    if layer := node.metadata_props.get(_LAYER):
        return "/".join([part for part in layer.split("/") if part][:_DEEPEST])
    names = _QUOTED.findall(node.metadata_props.get(_NAMES, ""))
    parts, around = [], ""
    for path in names[:-1]:  # the last one is the node
        if path.startswith(_NO_MODULE):
            return ""
        inner = path.removeprefix(f"{around}.") if around else path
        if path and inner:
            parts.append(inner.replace("/", "|"))
            around = path
    return "/".join(parts[:_DEEPEST])
