"""Seeing through what only moves values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.types import float_name

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["moves_data", "is_standard"]

# Results hold all elements of the first input, or repeat them: a mean, or an epsilon in them, is the same.
_DATA_MOVEMENT = frozenset({"Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"})


def is_standard(node: ir.Node) -> bool:
    """Whether `node` is of ONNX's own domain."""
    return node.domain in ("", "ai.onnx")


def moves_data(node: ir.Node) -> bool:
    """Whether `node` gives on the elements of its first input in another shape, or in another float type."""
    if node.op_type in ("Cast", "CastLike"):
        return is_standard(node) and float_name(node.inputs[0]) is not None and float_name(node.outputs[0]) is not None
    return node.op_type in _DATA_MOVEMENT and is_standard(node)
