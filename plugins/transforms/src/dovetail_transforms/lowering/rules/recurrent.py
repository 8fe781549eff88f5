"""Recurrent operators with the batch first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


_EXCHANGE = (1, 0, 2)
_BATCH_FIRST = (2, 0, 1, 3)  # of [steps, directions, batch, size]


def _pattern(op, x):
    return op.any_of("GRU", "LSTM", "RNN")(x, ...)


def _batch_second(op: Replacement, node: ir.Node, x: ir.Value) -> list[ir.Value | None]:
    def exchanged(value: ir.Value | None) -> ir.Value | None:
        return None if value is None else op.Transpose(value, perm=_EXCHANGE)

    inputs = [exchanged(x), *node.inputs[1:5], *map(exchanged, node.inputs[5:7]), *node.inputs[7:]]
    made = op.like(node, *inputs, layout=None)
    made = [made] if len(node.outputs) == 1 else list(made)
    return [
        op.Transpose(value, perm=_EXCHANGE if index else _BATCH_FIRST)
        if result.uses() or result.is_graph_output()
        else None
        for index, (value, result) in enumerate(zip(made, node.outputs))
    ]


RULES = (Rewrite("batch-second", _pattern, _batch_second),)
