"""Slices: the numbers of a tensor that share one scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from dovetail.ir.formats import Format


def scale_shape(format_: Format, shape: ir.Shape | Sequence[int] | None) -> tuple[int, ...]:
    """The shape that ONNX gives the scales of a tensor of `shape`: `()`, one extent, or that of its groups.

    Raises:
        ValueError: The tensor has no such axis, its extent is open, or groups do not divide it.
    """
    if format_.axis is None:
        return ()
    if shape is None:
        raise ValueError("its rank is not known, so how many scales it has is not known")
    if not -len(shape) <= format_.axis < len(shape):
        raise ValueError(f"a tensor with {len(shape)} axes has no axis {format_.axis}")
    axis = format_.axis % len(shape)
    wanted = shape if format_.group is not None else (shape[axis],)
    extents = tuple(extent for extent in wanted if isinstance(extent, int))
    if len(extents) < len(wanted):
        raise ValueError("it has an open extent, so how many scales it has is not known")
    if format_.group is None:
        return extents
    if extents[axis] % format_.group:
        raise ValueError(f"groups of {format_.group} do not divide the extent {extents[axis]} of axis {axis}")
    return (*extents[:axis], extents[axis] // format_.group, *extents[axis + 1 :])


def number_of_scales(format_: Format, shape: ir.Shape | Sequence[int] | None) -> int:
    """How many scales a tensor of `shape` has in a format.

    Raises:
        ValueError: See `scale_shape`.
    """
    return math.prod(scale_shape(format_, shape))


def slices(array: np.ndarray, format_: Format) -> np.ndarray:
    """`array` as a matrix with a row for each scale, in the order of the scales; a view where that is possible.

    Raises:
        ValueError: See `scale_shape`.
    """
    shape = scale_shape(format_, array.shape)
    if format_.axis is None:
        return array.reshape(1, -1)
    axis = format_.axis % array.ndim
    if format_.group is not None:
        split = array.reshape(*shape[: axis + 1], format_.group, *shape[axis + 1 :])
        array = np.moveaxis(split, axis + 1, -1)
    else:
        array = np.moveaxis(array, axis, 0)
    rows = math.prod(shape)
    return array.reshape(rows, array.size // rows if rows else 0)
