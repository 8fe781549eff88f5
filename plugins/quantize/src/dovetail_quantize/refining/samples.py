"""Fixed-size random samples of the operand rows of layers, from data of any length."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_quantize.refining.layers import Layer


class RowSample:
    """Uniform random sample of all offered rows, deterministic for the same data.

    Args:
        size: Maximum number of rows.
        seed: Seed of the random generator.

    Attributes:
        rows: Arrays with the sampled rows along their first axis; empty before the first offer.
    """

    def __init__(self, size: int, seed: int):
        self._size = size
        self._random = np.random.default_rng(seed)
        self._ranks = np.zeros(0)
        self.rows: tuple[np.ndarray, ...] = ()

    def __len__(self) -> int:
        return len(self._ranks)

    def offer(self, number: int, make: Callable[[np.ndarray], tuple[np.ndarray, ...]]) -> None:
        """Offer rows to the sample.

        Args:
            number: Number of rows.
            make: Computes the rows at given indices.
        """
        ranks = self._random.random(number)
        worst = self._ranks.max() if len(self._ranks) >= self._size else 2.0
        candidates = np.flatnonzero(ranks < worst)
        if len(candidates) > self._size:
            candidates = np.sort(candidates[np.argpartition(ranks[candidates], self._size)[: self._size]])
        if not len(candidates):
            return
        made = make(candidates)
        ranks = np.concatenate([self._ranks, ranks[candidates]])
        rows = tuple(map(np.concatenate, zip(self.rows, made))) if self.rows else made
        if len(ranks) > self._size:
            kept = np.sort(np.argpartition(ranks, self._size)[: self._size])
            ranks, rows = ranks[kept], tuple(part[kept] for part in rows)
        self._ranks, self.rows = ranks, rows


def positions_of(layer: Layer, computed: np.ndarray) -> int:
    """Return the number of positions of a result: elements of one channel over all samples."""
    return computed.size // layer.channels


def outputs_at(layer: Layer, computed: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Gather the output of a layer at given positions, as positions, groups and output channels."""
    rows = np.moveaxis(computed, 1, -1) if layer.is_convolution else computed
    groups, outputs, _ = layer.layout.extents
    return rows.reshape(-1, layer.channels)[positions].reshape(len(positions), groups, outputs)


def inputs_at(layer: Layer, inputs: np.ndarray, computed: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Gather the inputs of a layer for given output positions, as positions, groups, and inputs in weight order.

    Args:
        layer: The layer.
        inputs: Its input.
        computed: Its output for that input.
        positions: Flat output positions, samples first and without channels.
    """
    groups, _, channels = layer.layout.extents
    if not layer.is_convolution:
        return inputs.reshape(-1, channels)[positions].reshape(len(positions), groups, channels)
    extents = computed.shape[2:]
    sample, *places = np.unravel_index(positions, (computed.shape[0], *extents))
    kernel = layer.layout.shape[2:]
    find = _read_by_transposed if layer.node.op_type == "ConvTranspose" else _read
    indices, inside = [sample.reshape(-1, *[1] * len(kernel))], np.ones((1,) * (len(kernel) + 1), bool)
    for axis, (place, extent) in enumerate(zip(places, kernel)):
        given, made = inputs.shape[2 + axis], extents[axis]
        found = find(layer.node, axis, len(kernel), place, np.arange(extent), given, made)
        shape = [-1 if other == 0 else (extent if other == axis + 1 else 1) for other in range(len(kernel) + 1)]
        inside = inside & ((found >= 0) & (found < given)).reshape(shape)
        indices.append(np.clip(found, 0, given - 1).reshape(shape))
    windows = np.moveaxis(inputs, 1, -1)[tuple(np.broadcast_arrays(*indices))] * inside[..., None]
    rows = np.moveaxis(windows, -1, 1).reshape(len(positions), groups, channels * math.prod(kernel))
    return rows.astype(np.float32, copy=False)


def _read(
    node: ir.Node, axis: int, rank: int, place: np.ndarray, offset: np.ndarray, given: int, made: int
) -> np.ndarray:
    """Return the input indices along an axis that a convolution reads for outputs at `place`, by kernel offset."""
    stride, dilation = _of(node, "strides", axis, 1), _of(node, "dilations", axis, 1)
    begin = _of(node, "pads", axis, 0)
    missing = max(0, (made - 1) * stride + (len(offset) - 1) * dilation + 1 - given)
    begin = _automatic(node, begin, missing, missing // 2)
    return place[:, None] * stride + offset * dilation - begin


def _read_by_transposed(
    node: ir.Node, axis: int, rank: int, place: np.ndarray, offset: np.ndarray, given: int, made: int
) -> np.ndarray:
    """Return the input indices of a transposed convolution like `_read`; -1 where an offset reads nothing."""
    stride, dilation = _of(node, "strides", axis, 1), _of(node, "dilations", axis, 1)
    begin = _of(node, "pads", axis, 0)
    whole = stride * (given - 1) + _of(node, "output_padding", axis, 0) + (len(offset) - 1) * dilation + 1
    if "output_shape" in node.attributes:
        cut = whole - made
        begin = cut // 2 if node.attributes.get_string("auto_pad", "") == "SAME_UPPER" else cut - cut // 2
    begin = _automatic(node, begin, whole - made, (whole - made) // 2)
    found = place[:, None] + begin - offset * dilation
    return np.where(found % stride == 0, found // stride, -1)


def _automatic(node: ir.Node, explicit: int, total: int, half: int) -> int:
    """Return the padding before an axis, which `auto_pad` may derive from the shapes."""
    automatic = node.attributes.get_string("auto_pad", "NOTSET")
    known = {"SAME_UPPER": half, "SAME_LOWER": total - half, "VALID": 0}
    return known.get(automatic, explicit)


def _of(node: ir.Node, name: str, axis: int, default: int) -> int:
    found = node.attributes.get_ints(name, [])
    return found[axis] if found else default


def decibels(signal: float, error: float) -> float:
    """Return the ratio of two energies in dB: infinite without error, minus infinite without signal.

    Of two energies that are beyond the largest float, nothing is known: minus infinity.
    """
    if error <= 0:
        return math.inf
    if signal <= 0 or not math.isfinite(error):
        return -math.inf
    return 10 * (math.log10(signal) - math.log10(error))
