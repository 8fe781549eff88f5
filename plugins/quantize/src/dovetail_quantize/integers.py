"""The arithmetic of quantized formats: bounds of integers, slices with one scale, and parameters of ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
from dovetail.ir import Format
from dovetail.planning import Parameters, QuantizedValue
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    import onnx_ir as ir


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


_FLOAT32_BITS = 32
_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)


def bounds(format_: Format) -> tuple[int, int]:
    """The smallest and the largest integer that a format uses.

    A symmetric signed format leaves out the smallest one, so that the range is symmetric.
    """
    bits = format_.dtype.bitwidth
    if format_.element.startswith("u"):
        return 0, (1 << bits) - 1
    largest = (1 << (bits - 1)) - 1
    return (-largest - 1 if format_.scheme == "asymmetric" else -largest), largest


def parameters_of(quantized: QuantizedValue) -> Parameters:
    """Return the parameters of a quantized value that is calibrated."""
    assert quantized.parameters is not None, f"'{quantized.value}' is not calibrated"
    return quantized.parameters


def parameters_of_range(format_: Format, low: ArrayLike, high: ArrayLike) -> Parameters:
    """The parameters that cover real numbers from `low` to `high`, and zero.

    A range that is only zero gets the scale 1: any scale holds it exactly.

    Args:
        format_: The format.
        low: The smallest number, or one per index along the axis.
        high: The largest, as many.
    """
    scale, zero = scales_of_range(format_, np.atleast_1d(low), np.atleast_1d(high))
    return Parameters(tuple(scale.tolist()), tuple(int(one) for one in zero))


def scales_of_range(format_: Format, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zero points that cover real numbers from `low` to `high`, and zero; as float64, in their shape."""
    smallest, largest = bounds(format_)
    low, high = np.minimum(np.asarray(low, np.float64), 0), np.maximum(np.asarray(high, np.float64), 0)
    if format_.scheme == "asymmetric":
        scale = (high - low) / (largest - smallest)
    elif smallest == 0:
        scale = np.maximum(-low, high) / (largest // 2)
    else:
        scale = np.maximum(-low, high) / largest
    scale = np.where(scale == 0, 1.0, np.maximum(scale, _SMALLEST_SCALE))
    if format_.scheme == "power-of-two":
        scale = np.exp2(np.ceil(np.log2(scale)))
    # The model holds scales in float32, so that everything else has to be computed with these.
    scale = scale.astype(np.float32).astype(np.float64)
    if format_.scheme == "asymmetric":
        return scale, np.clip(np.rint(smallest - low / scale), smallest, largest)
    return scale, np.full(scale.shape, float((largest + 1) // 2 if smallest == 0 else 0))


def expressible(parameters: Parameters, format_: Format) -> Parameters:
    """The parameters with scales that the float type of the format has, as the model holds them in it.

    They are rounded up, so that no number saturates that did not before, and none becomes zero.
    """
    kind = Format.of(format_.expressed).dtype
    if kind.bitwidth >= _FLOAT32_BITS:
        return parameters
    held = kind.numpy()
    exact = np.asarray(parameters.scale, np.float32)
    scale = np.minimum(exact, float(ml_dtypes.finfo(held).max)).astype(held)
    scale = np.where(scale.astype(np.float32) < exact, np.nextafter(scale, held.type(np.inf)), scale)
    return Parameters(tuple(scale.astype(np.float64).tolist()), parameters.zero_point)


def quantize_array(array: np.ndarray, format_: Format, parameters: Parameters) -> np.ndarray:
    """`array` in integers of the format, rounded to nearest even and saturated."""
    smallest, largest = bounds(format_)
    scale, zero = (shaped(part, format_, array.shape) for part in parameters)
    integers = np.rint(array.astype(np.float32) / scale.astype(np.float32)) + zero
    return np.clip(integers, smallest, largest).astype(format_.dtype.numpy())


def shaped(numbers: tuple, format_: Format, shape: tuple[int, ...]) -> np.ndarray:
    """Scales or zero points in a shape that broadcasts against a tensor of `shape`."""
    array = np.asarray(numbers)
    if format_.axis is None:
        return array.reshape(())
    axis = format_.axis % len(shape)
    if format_.group is not None:
        return np.repeat(array.reshape(scale_shape(format_, shape)), format_.group, axis=axis)
    return array.reshape([-1 if index == axis else 1 for index in range(len(shape))])


def product_of_scales(format_: Format, factors: Sequence[Parameters]) -> Parameters:
    """The product, computed in float32 as integer kernels do; it has an axis where one of the factors has."""
    scale = np.ones(1, np.float32)
    for factor in factors:
        # Where both activation and weight are tiny, the product would be zero, which is no scale.
        scale = np.maximum(scale * np.asarray(factor.scale, np.float32), np.finfo(np.float32).tiny)
    return Parameters(tuple(scale.astype(np.float64).tolist()), (0,) * scale.size)
