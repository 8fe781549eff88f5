"""Operators that move data without computing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.types import float_name

if TYPE_CHECKING:
    import onnx_ir as ir


# The result has the same elements as the first input, or repeats of them, so means and lower bounds carry over.
_DATA_MOVEMENT = frozenset({"Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"})


def is_standard(node: ir.Node) -> bool:
    """Whether `node` is in the default ONNX domain."""
    return node.domain in ("", "ai.onnx")


def moves_data(node: ir.Node) -> bool:
    """Whether `node` only changes the shape or the float type of its first input."""
    if node.op_type in ("Cast", "CastLike"):
        return is_standard(node) and float_name(node.inputs[0]) is not None and float_name(node.outputs[0]) is not None
    return node.op_type in _DATA_MOVEMENT and is_standard(node)
