"""Extents of the values of a node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


def extents_of(value: ir.Value | None) -> list[int] | None:
    """The extents of a value; None if there is no value, or one of them is not known before run time."""
    shape = None if value is None else value.shape
    return list(shape.numpy()) if shape is not None and all(isinstance(extent, int) for extent in shape) else None


def all_extents(node: ir.Node) -> list[list[int]] | None:
    """The extents of the floats that a node reads and gives, without constants; None if one is not known."""
    read = [value for value in node.inputs if value is not None and value.const_value is None]
    floats = [value for value in (*read, *node.outputs) if _holds_floats(value)]
    shapes = [shape for value in floats if (shape := extents_of(value)) is not None]
    return shapes if len(shapes) == len(floats) else None


def product(extents: Sequence[int]) -> int:
    """The number of elements of a tensor with these extents."""
    return math.prod(extents)


def _holds_floats(value: ir.Value) -> bool:
    return bool(value.name) and value.dtype is not None and value.dtype.is_floating_point()
