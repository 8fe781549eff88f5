"""Encoding of parts of weights with a scale per block: functions of arrays alone, which any process can compute."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from dovetail.ir import Format
from dovetail.planning import Parameters

from dovetail_quantize.integers import integer_bounds, scale_shape
from dovetail_quantize.observers.least_squares import LeastSquares

_QUIET = 0.01  # of the mean energy; channels that the data left quiet count by it
Observed = Callable[..., Parameters]
"""Called with a part of a weight and, if there are any, with the weights of its squared errors."""
Store = Callable[[Format, np.ndarray], np.ndarray]
"""Packs integers, which have a byte each, into bytes."""


def encode(
    settings: Mapping[str, Any], part: np.ndarray, *others: np.ndarray, observed: Observed | None = None
) -> Sequence[np.ndarray]:
    """Quantize a part of a weight; a function of its arguments alone.

    Args:
        settings: Those of `BlockWeight.encoded`.
        part: The part.
        others: Scales and zero points if they are known, or the energies along the axis of the blocks if there are any.
        observed: Finds the parameters; by default `LeastSquares`.

    Returns:
        The bytes of the integers, the scales and the zero points.
    """
    format_ = Format.of(settings["format"])
    if settings["known"]:
        scale, zero = others
    else:
        by = [_spread(one, format_, part.shape) for one in others]
        found = _searched(part, format_, *by) if observed is None else observed(part, *by)
        shape, floats = scale_shape(format_, part.shape), ir.DataType[settings["floats"]].numpy()
        # In the types that they are stored in.
        scale = np.asarray(found[0], np.float32).reshape(shape).astype(floats)
        zero = np.asarray(found[1], np.int32).reshape(shape).astype(byte_type(format_))
    module, _, name = settings["store"].partition(":")
    store: Store = getattr(importlib.import_module(module), name)
    return store(format_, _quantized(part, format_, scale, zero)), scale, zero


def byte_type(format_: Format) -> type[np.integer]:
    """Return the type of a byte that holds an integer of a format."""
    return np.uint8 if format_.element.startswith("u") else np.int8


def _quantized(part: np.ndarray, format_: Format, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Return the integers of a part, a byte each; what `quantize_array` gives, without an array of repeated scales."""
    assert format_.axis is not None and format_.group is not None
    axis = format_.axis % part.ndim + 1
    split = (*scale.shape[:axis], format_.group, *scale.shape[axis:])
    numbers = part.reshape(split).astype(np.float32)
    numbers /= np.expand_dims(scale.astype(np.float32), axis)
    np.rint(numbers, out=numbers)
    if zero.any():
        numbers += np.expand_dims(zero.astype(np.float32), axis)
    smallest, largest = integer_bounds(format_)
    np.clip(numbers, np.float32(smallest), np.float32(largest), out=numbers)
    return numbers.astype(byte_type(format_)).reshape(part.shape)


def _searched(part: np.ndarray, format_: Format, energy: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    observer = LeastSquares(format_)
    observer.update_weighted(part, energy)
    return observer.arrays()


def _spread(energy: np.ndarray, format_: Format, extents: tuple[int, ...]) -> np.ndarray:
    """Return the energies for every number of a part."""
    assert format_.axis is not None
    axis = format_.axis % len(extents)
    found = np.maximum(energy, np.float32(_QUIET))
    return np.broadcast_to(found.reshape([-1 if at == axis else 1 for at in range(len(extents))]), extents)


def as_stored(format_: Format, integers: np.ndarray) -> np.ndarray:
    """Return integers as DequantizeLinear reads them, several in a byte where they are small."""
    return packed_bytes(integers, format_.dtype.bitwidth)


def packed_bytes(integers: np.ndarray, bits: int) -> np.ndarray:
    """Return integers one after the other, the first of those that share a byte in its lowest bits."""
    flat = np.ascontiguousarray(integers).reshape(-1).view(np.uint8)
    number = 8 // bits
    if number == 1:
        return flat
    mask = np.uint8((1 << bits) - 1)
    found = flat[0::number] & mask
    for place in range(1, number):
        found |= (flat[place::number] & mask) << np.uint8(bits * place)
    return found


def unpacked(flat: np.ndarray, format_: Format) -> np.ndarray:
    """Return the integers in bytes, a byte each."""
    bits, kind = format_.dtype.bitwidth, byte_type(format_)
    found = np.empty((len(flat), 8 // bits), kind)
    for place in range(8 // bits):
        # To the upper end of a byte and back, which repeats the sign of signed ones.
        shifted = flat << np.uint8(8 - bits * (place + 1))
        found[:, place] = shifted.view(kind) >> kind(8 - bits)
    return found.reshape(-1)
