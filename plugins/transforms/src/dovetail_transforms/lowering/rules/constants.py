"""Constants that are written as numbers, texts and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


def _check(node: ir.Node) -> str:
    import onnx_ir as ir

    return "" if ir.convenience.get_const_tensor(node.outputs[0]) is not None else "its value is not known"


def _constant_tensor(op: Replacement, node: ir.Node) -> ir.Value:
    import onnx_ir as ir

    return op.Constant(value=ir.convenience.get_const_tensor(node.outputs[0]))


RULES = (Rewrite("constant-tensor", lambda op: op.Constant(), _constant_tensor, _check),)
