"""Keep ONNX Runtime's CPU provider from dropping the rounding to float16.

It has few float16 kernels: it computes other operators in float32 between casts that it inserts, and removes a pair of
casts between two such operators. That hides rounding and overflow. It keeps casts around operators with a float16
kernel, unless there is only one: so every result gets two Identity operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.editing import insert_after_value
from dovetail.ir.fresh_names import FreshNames
from dovetail.ir.required import graph_of

from dovetail_host.widened import fails, widen

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model


KEPT = ["EliminateIdentity", "NchwcTransformer"]
"""Disabled optimisers: one would remove the Identity operators, one crashes on a convolution before a GRU (1.31)."""

EXACT = frozenset({"Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Data movement: the results of these operators are rounded already."""

_FLOAT16 = 10  # onnx.TensorProto.DataType


def rounded(model: Model) -> Model | None:
    """Return a copy of `model` in which every float16 result is rounded; None if there is nothing to change."""
    if not any(_results(node) or fails(node) for node in model.nodes()):
        return None
    work = model.clone()
    names = FreshNames.of(work.graph)
    for node in list(work.nodes()):
        if fails(node):
            widen(node, names)
        for value in _results(node):
            _hold(graph_of(node), value, names)
    work.touch()
    return work


def _results(node: ir.Node) -> list[ir.Value]:
    if node.op_type in EXACT:
        return []
    return [
        value for value in node.outputs if value.dtype is not None and value.dtype.value == _FLOAT16 and value.uses()
    ]


def _hold(graph: ir.Graph, value: ir.Value, names: FreshNames) -> None:
    import onnx_ir as ir

    uses = [(node, index) for node, index in value.uses()]
    first = ir.node("Identity", [value], name=names.fresh(f"{value.name}/rounded_1"))
    second = ir.node("Identity", [first.outputs[0]], name=names.fresh(f"{value.name}/rounded_2"))
    for node in (first, second):
        node.outputs[0].name = node.name
        node.outputs[0].type = value.type
    insert_after_value(graph, value, first)
    insert_after_value(graph, first.outputs[0], second)
    for node, index in uses:
        node.replace_input_with(index, second.outputs[0])
