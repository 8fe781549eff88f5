"""Sums over axes as ONNX Runtime's WebGPU provider computes them: reductions, normalizations, softmax, pools.

Reductions, softmax and pools add in float16, in lanes whose sums are then added as a tree; normalizations have their
sums in float32, and all that follows in float16. Source of these rules are its shaders (onnxruntime-ep-webgpu 0.4.0:
reduction_ops, softmax, layer_norm, instance_norm, batch_norm, pool, cum_sum), checked by
`backends/gpu_fp16/tools/measure_sums.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail_gpu_fp16.half.arithmetic import added_as_tree, added_in_lanes, exp, log, rounded
from dovetail_gpu_fp16.half.products import Attributes, Operands, extents_of, given, padding_of

_LANES, _LANES_OF_ONE = 64, 256  # of a workgroup: in general, and where there is one result only
_POOL_LANES, _FEW = 128, 4096  # of a pool with fewer results than this and larger windows than the lanes; measured


def reduction(before: Callable[[np.ndarray], np.ndarray] | None, after: str = "") -> Callable:
    """Return a function that adds over the axes.

    Args:
        before: What is computed of each element; None for nothing.
        after: What is computed of the sum: `mean`, `log`, `sqrt`, or nothing.
    """

    def compute(inputs: Operands, attributes: Attributes) -> np.ndarray:
        data = given(inputs[0])
        axes = inputs[1].astype(int).ravel().tolist() if len(inputs) > 1 and inputs[1] is not None else None
        axes = list(attributes.get("axes") or ()) if axes is None else axes
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return data if before is None else before(data)
        chosen = sorted({axis % data.ndim for axis in axes}) or list(range(data.ndim))
        kept = [axis for axis in range(data.ndim) if axis not in chosen]
        flat = data.transpose(*kept, *chosen).reshape(*(data.shape[axis] for axis in kept), -1)
        count, results = flat.shape[-1], int(np.prod(flat.shape[:-1]))
        values = flat if before is None else before(flat)
        if count < 32 and results > 1024:  # one lane, whose sum is in float32
            total = values.sum(-1, dtype=np.float32) if before is None else before32(flat).sum(-1, dtype=np.float32)
            total = rounded(total / count if after == "mean" else total)
        else:
            total = _sum(values, results)
            total = rounded(total / np.float32(np.float16(count))) if after == "mean" else total
        if after == "sqrt":
            total = rounded(np.sqrt(total))
        elif after == "log":
            total = log(total)
        shape = [1 if axis in chosen else extent for axis, extent in enumerate(data.shape)]
        return total.reshape(shape) if attributes.get("keepdims", 1) else total

    def before32(values: np.ndarray) -> np.ndarray:
        """Compute `before` as it is where sums are in float32: squares are not rounded."""
        return values * values if before is square else before(values) if before is not None else values

    return compute


def square(values: np.ndarray) -> np.ndarray:
    """Return squares, rounded."""
    return rounded(values * values)


def _sum(values: np.ndarray, results: int) -> np.ndarray:
    lanes = _LANES_OF_ONE if results == 1 else _LANES
    return added_as_tree(added_in_lanes(values, lanes), min(values.shape[-1], lanes))


def softmax(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Compute exponentials and their sum in float16: lanes of up to four elements, then a tree, then these elements."""
    shares, _ = _softmax(given(inputs[0]), attributes)
    return shares


def log_softmax(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Subtract the logarithm of the sum, which is computed as in `softmax`."""
    data = given(inputs[0])
    _, total = _softmax(data, attributes)
    axis = int(attributes.get("axis", -1))
    return rounded(rounded(data - data.max(axis, keepdims=True)) - log(total))


def _softmax(data: np.ndarray, attributes: Attributes) -> tuple[np.ndarray, np.ndarray]:
    axis = int(attributes.get("axis", -1))
    moved = np.moveaxis(data, axis, -1)
    if not moved.size:
        return data, data
    powers = exp(rounded(moved - moved.max(-1, keepdims=True)))
    count = moved.shape[-1]
    together = 4 if count % 4 == 0 else 2 if count % 2 == 0 else 1
    rows = powers.reshape(-1, count // together, together).transpose(2, 0, 1)
    lanes = _LANES_OF_ONE if rows.shape[1] == 1 else _LANES
    parts = added_as_tree(added_in_lanes(rows, lanes), lanes)
    total = parts[0]
    for part in parts[1:]:
        total = rounded(total + part)
    total = total.reshape(*moved.shape[:-1], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = rounded(powers / total)
    return np.moveaxis(shares, -1, axis), np.moveaxis(total, -1, axis)


def layer_normalization(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Normalize with statistics in float32, and differences, products and sums in float16."""
    data, scale, bias = given(inputs[0]), given(inputs[1]), inputs[2] if len(inputs) > 2 else None
    axis = int(attributes.get("axis", -1)) % data.ndim
    axes = tuple(range(axis, data.ndim))
    mean = data.mean(axes, keepdims=True, dtype=np.float64)
    spread = (data.astype(np.float64) ** 2).mean(axes, keepdims=True) - mean**2
    centered = rounded(data - rounded(mean))
    result = rounded(rounded(centered * _inverse_root(spread, attributes)) * scale)
    return result if bias is None else rounded(result + bias)


def rms_normalization(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Normalize with the mean of squares in float32, and products in float16."""
    data, scale = given(inputs[0]), given(inputs[1])
    axis = int(attributes.get("axis", -1)) % data.ndim
    power = (data.astype(np.float64) ** 2).mean(tuple(range(axis, data.ndim)), keepdims=True)
    return rounded(rounded(data * _inverse_root(power, attributes)) * scale)


def instance_normalization(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Normalize with a factor and a summand per channel, computed in float32 and rounded."""
    data, scale, bias = given(inputs[0]), given(inputs[1]), given(inputs[2])
    axes, shape = tuple(range(2, data.ndim)), (1, -1, *[1] * (data.ndim - 2))
    mean = data.mean(axes, keepdims=True, dtype=np.float64)
    spread = (data.astype(np.float64) ** 2).mean(axes, keepdims=True) - mean**2
    factor = scale.reshape(shape) / np.sqrt(spread + _epsilon(attributes))
    summand = bias.reshape(shape) - mean * factor
    return rounded(rounded(data * rounded(factor)) + rounded(summand))


def batch_normalization(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Normalize in float16, statistics included."""
    data = given(inputs[0])
    shape = (1, -1, *[1] * (data.ndim - 2))
    scale, bias, mean, variance = (rounded(given(value)).reshape(shape) for value in inputs[1:5])
    inverse = rounded(1 / np.sqrt(rounded(variance + rounded(np.float32(_epsilon(attributes))))))
    return rounded(rounded(rounded(rounded(data - mean) * inverse) * scale) + bias)


def _epsilon(attributes: Attributes) -> float:
    return float(attributes.get("epsilon", 1e-5))


def _inverse_root(spread: np.ndarray, attributes: Attributes) -> np.ndarray:
    return rounded(1 / np.sqrt(spread + _epsilon(attributes)))


def global_average_pool(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Add all elements of a channel in order, or in 128 lanes where there are few large channels."""
    data = given(inputs[0])
    flat = data.reshape(*data.shape[:2], -1)
    total = _pooled(flat)
    return rounded(total / np.float32(np.float16(flat.shape[-1]))).reshape(*data.shape[:2], *[1] * (data.ndim - 2))


def average_pool(inputs: Operands, attributes: Attributes) -> np.ndarray | None:
    """Add the elements of a window in order; None for what the shader does not take, such as `ceil_mode`."""
    data = given(inputs[0])
    rank = data.ndim - 2
    if attributes.get("ceil_mode", 0):
        return None
    kernel, strides = extents_of(attributes, "kernel_shape", rank), extents_of(attributes, "strides", rank)
    dilations = extents_of(attributes, "dilations", rank)
    begin, end = padding_of(attributes, data.shape[2:], kernel, strides, dilations)
    borders = [(0, 0), (0, 0), *zip(begin, end, strict=True)]
    padded, inside = np.pad(data, borders), np.pad(np.ones_like(data), borders)

    def windows(values: np.ndarray) -> np.ndarray:
        reach = tuple((size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True))
        found = np.lib.stride_tricks.sliding_window_view(values, reach, axis=tuple(range(2, data.ndim)))
        found = found[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]
        dilated: tuple[Any, ...] = (..., *(slice(None, None, d) for d in dilations))
        found = found[dilated]
        return found.reshape(*found.shape[: data.ndim], -1)

    parts = windows(padded)
    included = bool(attributes.get("count_include_pad", 0))
    counts = np.float32(parts.shape[-1]) if included else windows(inside).sum(-1, dtype=np.float32)
    return rounded(_pooled(parts) / rounded(counts))


def _pooled(parts: np.ndarray) -> np.ndarray:
    results, count = int(np.prod(parts.shape[:-1])), parts.shape[-1]
    if results < _FEW and count >= _POOL_LANES:
        return added_as_tree(added_in_lanes(parts, _POOL_LANES), _POOL_LANES)
    return added_in_lanes(parts, 1)[..., 0]


def cumulative_sum(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Add in order."""
    data, axis = given(inputs[0]), int(np.asarray(given(inputs[1])).reshape(()))
    moved = np.moveaxis(data, axis, 0)
    moved = moved[::-1] if attributes.get("reverse", 0) else moved
    result, total = np.empty_like(moved), np.zeros_like(moved[:1])[0] if len(moved) else None
    for index, step in enumerate(moved):
        before = total
        total = rounded(total + step)
        result[index] = before if attributes.get("exclusive", 0) else total
    result = result[::-1] if attributes.get("reverse", 0) else result
    return np.moveaxis(result, 0, axis)
