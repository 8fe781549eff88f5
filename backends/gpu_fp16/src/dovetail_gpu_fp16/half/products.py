"""Products as ONNX Runtime's WebGPU provider sums them: in float16, one after the other.

The rules are those of its shaders (onnxruntime-ep-webgpu 0.4.0: matmul_packed, gemm_packed, conv2d_mm_webgpu,
grouped_conv, conv_backprop_webgpu), and `backends/gpu_fp16/tools/measure_sums.py` compares them with what they compute:
on Mesa's software Vulkan the results are equal bit for bit. A device that fuses a product with the sum rounds half as
often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail_gpu_fp16.half.arithmetic import (
    TILE,
    exact_sum_of_products,
    is_safe,
    matrix_product,
    rounded,
    sum_of_products,
)

Attributes = Mapping[str, Any]
Operands = Sequence["np.ndarray | None"]


def matmul(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Multiply in the order of the inner axis."""
    left, right = given(inputs[0]), given(inputs[1])
    a, b = left if left.ndim > 1 else left[None, :], right if right.ndim > 1 else right[:, None]
    result = matrix_product(a, b)
    result = result if left.ndim > 1 else result[..., 0, :]
    return result if right.ndim > 1 else result[..., 0]


def gemm(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Multiply in the order of the inner axis; with `transB`, four products are added to each other first.

    alpha and beta are rounded to float16, as their products are.
    """
    left, right, bias = given(inputs[0]), given(inputs[1]), inputs[2] if len(inputs) > 2 else None
    transposed = bool(attributes.get("transB", 0))
    a = left.T if attributes.get("transA", 0) else left
    b = right.T if transposed else right
    result = matrix_product(a, b, dots=4 if transposed and a.shape[1] % 4 == 0 else 1)
    alpha, beta = _scalar(attributes, "alpha"), _scalar(attributes, "beta")
    result = rounded(result * alpha) if alpha != 1 else result
    if bias is not None:
        result = rounded(result + (rounded(bias * beta) if beta != 1 else bias))
    return result


def conv(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Add over the kernel's extents first, then over channels, and the bias last."""
    data, weight, bias = given(inputs[0]), given(inputs[1]), inputs[2] if len(inputs) > 2 else None
    rank, groups = data.ndim - 2, int(attributes.get("group", 1))
    kernel = weight.shape[2:]
    strides, dilations = extents_of(attributes, "strides", rank), extents_of(attributes, "dilations", rank)
    begin, end = padding_of(attributes, data.shape[2:], kernel, strides, dilations)
    padded = np.pad(data, [(0, 0), (0, 0), *zip(begin, end, strict=True)])
    spatial = [
        (extent - (size - 1) * dilation - 1) // stride + 1
        for extent, size, dilation, stride in zip(padded.shape[2:], kernel, dilations, strides, strict=True)
    ]
    batch, channels, filters = data.shape[0], weight.shape[1], weight.shape[0] // groups
    padded = padded.reshape(batch, groups, channels, *padded.shape[2:])
    weights = weight.reshape(groups, filters, channels, *kernel)
    offsets = list(np.ndindex(*kernel))

    def window(k: int) -> np.ndarray:
        offset, channel = offsets[k // channels], k % channels
        cut = tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, s, n in zip(offset, dilations, strides, spatial, strict=True)
        )
        return padded[(slice(None), slice(None), channel, *cut)].reshape(batch, groups, 1, -1)

    count = len(offsets) * channels
    safe = is_safe(padded, weights, count) or _fits(padded, weights, channels)
    compute = sum_of_products if safe else exact_sum_of_products
    result = np.empty((batch, groups, filters, int(np.prod(spatial))), np.float32)
    height = max(1, TILE // max(1, batch * groups * result.shape[-1]))
    for row in range(0, filters, height):
        part = weights[:, row : row + height]
        flat = part.reshape(groups, part.shape[1], channels, -1)

        def factor(k: int, flat: np.ndarray = flat) -> np.ndarray:
            return flat[:, :, k % channels, k // channels][None, :, :, None]

        shape = (batch, groups, part.shape[1], result.shape[-1])
        result[:, :, row : row + height] = compute(window, factor, count, shape)
    result = result.reshape(batch, groups * filters, *spatial)
    return _biased(result, bias)


def conv_transpose(inputs: Operands, attributes: Attributes) -> np.ndarray:
    """Add over the kernel's extents first, from its end, then over channels, and the bias last."""
    data, weight, bias = given(inputs[0]), given(inputs[1]), inputs[2] if len(inputs) > 2 else None
    rank, groups = data.ndim - 2, int(attributes.get("group", 1))
    kernel, filters = weight.shape[2:], weight.shape[1]
    strides, dilations = extents_of(attributes, "strides", rank), extents_of(attributes, "dilations", rank)
    batch, channels = data.shape[0], data.shape[1] // groups
    full = [
        (extent - 1) * stride + (size - 1) * dilation + 1
        for extent, stride, size, dilation in zip(data.shape[2:], strides, kernel, dilations, strict=True)
    ]
    begin, sizes = _transposed_extents(attributes, full, data.shape[2:], strides)
    # The data with zeros between and around its elements: products with these change nothing.
    reach = [(size - 1) * dilation for size, dilation in zip(kernel, dilations, strict=True)]
    spread = np.zeros((batch, groups, channels, *(e + r for e, r in zip(full, reach, strict=True))), np.float32)
    at: tuple[Any, ...] = tuple(
        slice(r, r + (extent - 1) * stride + 1, stride)
        for r, extent, stride in zip(reach, data.shape[2:], strides, strict=True)
    )
    spread[(slice(None), slice(None), slice(None), *at)] = data.reshape(batch, groups, channels, *data.shape[2:])
    weights = weight.reshape(groups, channels, filters, *kernel)
    offsets = list(np.ndindex(*kernel))

    def window(k: int) -> np.ndarray:
        offset, channel = offsets[k // channels], k % channels
        cut = [slice(o * d, o * d + extent) for o, d, extent in zip(offset, dilations, full, strict=True)]
        at: tuple[Any, ...] = (slice(None), slice(None), channel, *cut)
        return spread[at].reshape(batch, groups, 1, -1)

    def factor(k: int) -> np.ndarray:
        offset = tuple(size - 1 - o for o, size in zip(offsets[k // channels], kernel, strict=True))
        at: tuple[Any, ...] = (slice(None), k % channels, slice(None), *offset)
        return weights[at][None, :, :, None]

    count, shape = len(offsets) * channels, (batch, groups, filters, int(np.prod(full)))
    safe = is_safe(data, weights, count)
    dots = 4 if filters == 1 and channels % 4 == 0 else 1
    result = (sum_of_products if safe else exact_sum_of_products)(window, factor, count, shape, dots)
    result = result.reshape(batch, groups * filters, *full)
    missing = [max(0, b + n - extent) for b, n, extent in zip(begin, sizes, full, strict=True)]
    result = np.pad(result, [(0, 0), (0, 0), *((0, more) for more in missing)])
    cut = tuple(slice(b, b + n) for b, n in zip(begin, sizes, strict=True))
    return _biased(result[(slice(None), slice(None), *cut)], bias)


def _biased(result: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return result if bias is None else rounded(result + bias.reshape(1, -1, *[1] * (result.ndim - 2)))


def _fits(padded: np.ndarray, weights: np.ndarray, channels: int) -> bool:
    """Check by the largest absolute sums of weights whether a convolution stays within float16."""
    most = float(np.abs(padded).max()) * float(np.abs(weights).sum(axis=tuple(range(2, weights.ndim))).max())
    return bool(np.isfinite(most)) and most < 60000


def given(value: np.ndarray | None) -> np.ndarray:
    """Return an operand that is there."""
    assert value is not None, "the checker requires it"
    return value


def _scalar(attributes: Attributes, name: str) -> np.float32:
    return np.float32(np.float16(attributes.get(name, 1.0)))


def extents_of(attributes: Attributes, name: str, rank: int) -> list[int]:
    """Return an attribute with a number per axis; by default ones."""
    return [int(each) for each in attributes.get(name) or [1] * rank]


def padding_of(
    attributes: Attributes,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Return the padding before and after each axis."""
    kind = str(attributes.get("auto_pad") or "NOTSET")
    rank = len(extents)
    if kind == "NOTSET":
        pads = [int(each) for each in attributes.get("pads") or [0] * 2 * rank]
        return pads[:rank], pads[rank:]
    if kind == "VALID":
        return [0] * rank, [0] * rank
    needed = [
        max(0, (-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent)
        for extent, stride, size, dilation in zip(extents, strides, kernel, dilations, strict=True)
    ]
    less, more = [each // 2 for each in needed], [each - each // 2 for each in needed]
    return (less, more) if kind == "SAME_UPPER" else (more, less)


def _transposed_extents(
    attributes: Attributes, full: Sequence[int], extents: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return where the result of a transposed convolution begins in the full one, and its extents."""
    rank = len(full)
    more = [int(each) for each in attributes.get("output_padding") or [0] * rank]
    kind = str(attributes.get("auto_pad") or "NOTSET")
    shape = attributes.get("output_shape")
    if shape or kind.startswith("SAME"):
        asked = list(shape) if shape else [e * s for e, s in zip(extents, strides, strict=True)]
        sizes = [int(each) for each in asked[-rank:]]
        cut = [max(0, f + m - size) for f, m, size in zip(full, more, sizes, strict=True)]
        return [each // 2 if kind != "SAME_LOWER" else each - each // 2 for each in cut], sizes
    pads = [int(each) for each in attributes.get("pads") or [0] * 2 * rank]
    sizes = [f + m - pads[i] - pads[rank + i] for i, (f, m) in enumerate(zip(full, more, strict=True))]
    return pads[:rank], sizes
