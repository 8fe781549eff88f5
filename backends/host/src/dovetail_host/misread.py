"""Constructs that ONNX Runtime misreads: omitted inputs at the end of a node, and lists of axes after a Transpose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail_onnx import READ_TO_THE_END

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model

TRANSPOSE_OPTIMIZER = "TransposeOptimizer"
"""ONNX Runtime's optimizer that moves a Transpose over a Pad, Resize or CenterCropPad with a list of axes, and reorders
the list as if it named all axes (1.32)."""


def with_all_inputs(model: Model) -> Model | None:
    """Return a copy of a model in which kernels find a blank for each input that they read; None if nothing lacks."""
    if not any(nodes_cut_short(model)):
        return None
    copy = model.clone()
    for node, number in nodes_cut_short(copy):
        node.resize_inputs(number)
    return copy


def nodes_cut_short(model: Model) -> Iterator[tuple[ir.Node, int]]:
    """Yield the nodes with fewer inputs than their kernel reads, and how many it reads."""
    functions = (node for function in model.ir.functions.values() for node in function)
    for node in (*model.nodes(), *functions):
        number = READ_TO_THE_END.get((node.domain, node.op_type), 0)
        if len(node.inputs) < number:
            yield node, number


def misread_by_transpose_optimizer(model: Model) -> list[ir.Node]:
    """Return the nodes that pad, resize or crop listed axes, in a model with a Transpose."""
    nodes = list(model.nodes())
    if not any(node.op_type == "Transpose" for node in nodes):
        return []
    return [node for node in nodes if _lists_axes(node)]


def _lists_axes(node: ir.Node) -> bool:
    if node.op_type == "Pad":
        return len(node.inputs) > 3 and node.inputs[3] is not None
    return node.op_type in ("CenterCropPad", "Resize") and "axes" in node.attributes
