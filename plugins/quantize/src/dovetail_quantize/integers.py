"""Arithmetic of quantized formats: integer bounds, slices that share a scale, and parameters from ranges."""

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
    """Return the ONNX shape of the scales for a tensor of `shape`: `()`, one extent, or one extent per axis for groups.

    Raises:
        ValueError: The tensor has no such axis, its extent is open, or the group size does not divide it.
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
    """Return how many scales a tensor of `shape` has in a format.

    Raises:
        ValueError: See `scale_shape`.
    """
    return math.prod(scale_shape(format_, shape))


def slices(array: np.ndarray, format_: Format) -> np.ndarray:
    """Reshape `array` to a matrix with one row per scale, in the order of the scales; a view where possible.

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


def spread_extents(extents: Sequence[int], format_: Format, number: int) -> tuple[int, ...]:
    """Return the extents of a bias in a format with `number` scales: one that is a single number is stored for each."""
    if format_.axis is None:
        return tuple(extents)
    wanted = list(extents) or [1]
    axis = format_.axis % len(wanted)
    wanted[axis] = number if wanted[axis] == 1 else wanted[axis]
    return tuple(wanted)


def columns(array: np.ndarray, format_: Format) -> np.ndarray:
    """Reshape `array` to a matrix with one column per scale, in the order of the scales; a view where possible.

    Raises:
        ValueError: See `scale_shape`.
    """
    shape = scale_shape(format_, array.shape)
    if format_.axis is None or format_.group is None:
        return slices(array, format_).T
    axis = format_.axis % array.ndim
    split = array.reshape(*shape[: axis + 1], format_.group, *shape[axis + 1 :])
    return np.moveaxis(split, axis + 1, 0).reshape(format_.group, math.prod(shape))


_FLOAT32_BITS = 32
_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)


def integer_bounds(format_: Format) -> tuple[int, int]:
    """Return the smallest and the largest integer that a format uses.

    A symmetric signed format omits the smallest integer, so that its range is symmetric. A format with blocks has few
    of them and uses all: a negative scale can give the smallest one to the largest number.
    """
    bits = format_.dtype.bitwidth
    if format_.element.startswith("u"):
        return 0, (1 << bits) - 1
    largest = (1 << (bits - 1)) - 1
    return (-largest - 1 if format_.scheme == "asymmetric" or format_.group is not None else -largest), largest


def parameters_of(quantized: QuantizedValue) -> Parameters:
    """Return the parameters of a calibrated quantized value."""
    assert quantized.parameters is not None, f"'{quantized.value}' is not calibrated"
    return quantized.parameters


def parameters_of_range(format_: Format, low: ArrayLike, high: ArrayLike) -> Parameters:
    """Return parameters that cover the range from `low` to `high`, including zero.

    A range of only zero gets the scale 1, as any scale represents it exactly.

    Args:
        format_: The format.
        low: The smallest number, or one per index along the axis.
        high: The largest number, or one per index along the axis.
    """
    scale, zero = scales_of_range(format_, np.atleast_1d(low), np.atleast_1d(high))
    return Parameters(tuple(scale.tolist()), tuple(int(one) for one in zero))


def scales_of_range(format_: Format, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 scales and zero points that cover `low` to `high`, including zero, in the shape of these."""
    smallest, largest = integer_bounds(format_)
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
    # The model stores scales in float32, so the zero points must be computed from the rounded scales.
    scale = scale.astype(np.float32).astype(np.float64)
    if format_.scheme == "asymmetric":
        # A range around zero is a tie, which must not hang on the last bit of what another CPU sums.
        return scale, np.clip(np.rint(np.round(smallest - low / scale, 4)), smallest, largest)
    return scale, np.full(scale.shape, float((largest + 1) // 2 if smallest == 0 else 0))


def expressible(parameters: Parameters, format_: Format) -> Parameters:
    """Round scales up to the float type that the format expresses, in which the model stores them.

    Rounding up ensures that no further number saturates and no scale becomes zero.
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
    """Quantize `array`: round to nearest even and saturate."""
    smallest, largest = integer_bounds(format_)
    scale, zero = _scale_and_zero(format_, parameters, array.shape)
    integers = np.rint(array.astype(np.float32, copy=False) / scale)
    if zero is not None:
        integers = integers + zero
    return np.clip(integers, smallest, largest).astype(format_.dtype.numpy())


def dequantize_array(integers: np.ndarray, format_: Format, parameters: Parameters) -> np.ndarray:
    """Return the numbers that integers represent, in float32."""
    scale, zero = _scale_and_zero(format_, parameters, integers.shape)
    numbers = integers.astype(np.float32)
    return (numbers if zero is None else (numbers - zero).astype(np.float32, copy=False)) * scale


_EXACT_BITS = 16  # float32 holds sums of such integers and zero points exactly


def _scale_and_zero(
    format_: Format, parameters: Parameters, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scales in float32, and zero points in the smallest float type that is exact; None for narrow zeros."""
    scale, zero = (shaped(part, format_, shape) for part in parameters)
    if format_.dtype.bitwidth > _EXACT_BITS:
        return scale.astype(np.float32), zero.astype(np.float64)
    return scale.astype(np.float32), zero.astype(np.float32) if zero.any() else None


def shaped(numbers: tuple, format_: Format, shape: tuple[int, ...]) -> np.ndarray:
    """Reshape scales or zero points to broadcast against a tensor of `shape`."""
    array = np.asarray(numbers)
    if format_.axis is None:
        return array.reshape(())
    axis = format_.axis % len(shape)
    if format_.group is not None:
        return np.repeat(array.reshape(scale_shape(format_, shape)), format_.group, axis=axis)
    return array.reshape([-1 if index == axis else 1 for index in range(len(shape))])


def product_of_scales(format_: Format, factors: Sequence[Parameters]) -> Parameters:
    """Multiply scales in float32, as integer kernels do; the product is per-channel if a factor is."""
    scale = np.ones(1, np.float32)
    for factor in factors:
        # The product of two tiny scales may underflow to zero, which is not a valid scale.
        scale = np.maximum(scale * np.asarray(factor.scale, np.float32), np.finfo(np.float32).tiny)
    return Parameters(tuple(scale.astype(np.float64).tolist()), (0,) * scale.size)
