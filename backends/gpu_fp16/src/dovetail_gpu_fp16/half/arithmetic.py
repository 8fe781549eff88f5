"""Arithmetic of float16 in float32 arrays whose elements are all float16 numbers: a result is rounded after each step.

NumPy's own float16 takes five times as long. Products of two such numbers and sums of two are exact in float32, or
rounded so far below half a step of float16 that rounding once more gives what float16 hardware gives.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LARGEST = 65504.0
"""The largest float16; a sum beyond it is infinite."""

TILE = 1 << 15
"""Elements of a sum that are computed at once, so that they stay in the cache."""

_EXPONENT = np.uint32(0x7F800000)
_SMALLEST_NORMAL = np.float32(2.0**-14)
_STEP = np.float32(1.5 * 2**13)  # added and subtracted, it leaves 11 bits: float32 has 24
_LOG2_E = np.float32(np.float16(np.log2(np.e)))


def rounded(values: np.ndarray | np.floating) -> np.ndarray:
    """Round to the nearest float16, ties to even; beyond the largest one to infinity."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32).astype(np.float16).astype(np.float32)


def wide(values: np.ndarray) -> np.ndarray:
    """Return float16 numbers as float32."""
    return np.asarray(values).astype(np.float32)


def _round_in_place(values: np.ndarray, scratch: np.ndarray) -> None:
    """Round finite values below the largest float16 in place: adds a number whose last bit is the last of float16."""
    np.bitwise_and(values.view(np.uint32), _EXPONENT, out=scratch.view(np.uint32))
    np.maximum(scratch, _SMALLEST_NORMAL, out=scratch)
    np.multiply(scratch, _STEP, out=scratch)
    np.add(values, scratch, out=values)
    np.subtract(values, scratch, out=values)


Factor = Callable[[int], np.ndarray]
"""Returns the k-th column of the left operand, or the k-th row of the right one, as they broadcast into the result."""


def sum_of_products(left: Factor, right: Factor, count: int, shape: tuple[int, ...], dots: int = 1) -> np.ndarray:
    """Sum products in the order of their index, each product and each sum rounded to float16.

    Args:
        left: The left factors.
        right: The right factors.
        count: The number of products per element of the result.
        shape: The shape of the result.
        dots: So many products are added to each other first, as a `dot` of vectors does.
    """
    total = np.zeros(shape, np.float32)
    if not total.size:
        return total
    product, scratch, part = np.empty_like(total), np.empty_like(total), np.empty_like(total)
    for first in range(0, count, dots):
        for index in range(first, min(first + dots, count)):
            into = part if index == first else product
            np.multiply(left(index), right(index), out=into)
            _round_in_place(into, scratch)
            if index > first:
                np.add(part, product, out=part)
                _round_in_place(part, scratch)
        np.add(total, part, out=total)
        _round_in_place(total, scratch)
    return total


def exact_sum_of_products(left: Factor, right: Factor, count: int, shape: tuple[int, ...], dots: int = 1) -> np.ndarray:
    """Compute `sum_of_products` in NumPy's float16, for operands that may overflow or are not finite."""
    total = np.zeros(shape, np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, count, dots):
            part = np.zeros(shape, np.float16)
            for index in range(first, min(first + dots, count)):
                product = left(index).astype(np.float16) * right(index).astype(np.float16)
                part = product if index == first else part + product
            total = total + part
    return wide(total)


def matrix_product(left: np.ndarray, right: np.ndarray, dots: int = 1) -> np.ndarray:
    """Multiply matrices of float16 numbers, with the leading axes broadcast, in the order of the inner axis."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    result = np.empty((*batch, rows, columns), np.float32)
    if not result.size:
        return result
    safe = is_safe(left, right, inner)
    lefts = np.broadcast_to(left, (*batch, rows, inner)).reshape(-1, rows, inner)
    rights = np.broadcast_to(right, (*batch, inner, columns)).reshape(-1, inner, columns)
    flat = result.reshape(-1, rows, columns)
    for matrices, height in _tiles(flat.shape):
        a, b = np.ascontiguousarray(lefts[matrices, height].transpose(2, 0, 1)), rights[matrices]
        shape = flat[matrices, height].shape
        flat[matrices, height] = in_order(a, b, inner, shape, dots, safe)
    return result


def in_order(
    left: np.ndarray, right: np.ndarray, inner: int, shape: tuple[int, ...], dots: int, safe: bool
) -> np.ndarray:
    """Sum products of a left operand with the inner axis first and a right one with the inner axis second."""
    compute = sum_of_products if safe else exact_sum_of_products
    return compute(lambda k: left[k][:, :, None], lambda k: right[:, k, None, :], inner, shape, dots)


def is_safe(left: np.ndarray, right: np.ndarray, count: int) -> bool:
    """Check that no sum of so many products can leave the range of float16."""
    if not left.size or not right.size:
        return True
    most = float(np.abs(left).max()) * float(np.abs(right).max())
    return bool(np.isfinite(most)) and (most * count < LARGEST or _bound(left, right) < LARGEST)


def _bound(left: np.ndarray, right: np.ndarray) -> float:
    """Return a bound of sums of products by norms (Cauchy and Schwarz), if both are matrices; else infinity.

    A tenth is added for rounding.
    """
    if left.ndim < 2 or right.ndim < 2:
        return float("inf")
    rows = np.sqrt((left.astype(np.float64) ** 2).sum(-1)).max()
    columns = np.sqrt((right.astype(np.float64) ** 2).sum(-2)).max()
    return float(rows * columns) * 1.1


def _tiles(shape: tuple[int, ...]):
    """Yield slices of matrices and of their rows, about a tile each."""
    matrices, rows, columns = shape
    if rows * columns >= TILE:
        height = max(1, TILE // columns)
        for matrix in range(matrices):
            for row in range(0, rows, height):
                yield slice(matrix, matrix + 1), slice(row, row + height)
        return
    together = max(1, TILE // max(1, rows * columns))
    for matrix in range(0, matrices, together):
        yield slice(matrix, matrix + together), slice(None)


def exp(values: np.ndarray) -> np.ndarray:
    """Compute the exponential as 2 to the power of the product with log2(e), rounded before and after."""
    with np.errstate(over="ignore"):
        return rounded(np.exp2(rounded(values * _LOG2_E)))


def log(values: np.ndarray) -> np.ndarray:
    """Compute the logarithm as that of base 2, rounded, times log(2)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return rounded(rounded(np.log2(values)) * np.float32(np.float16(np.log(2))))


def added_in_lanes(values: np.ndarray, lanes: int) -> np.ndarray:
    """Add along the last axis: element k to lane k modulo `lanes`, in order; return the lanes."""
    missing = -values.shape[-1] % lanes
    if missing:
        values = np.concatenate([values, np.zeros((*values.shape[:-1], missing), np.float32)], axis=-1)
    steps = values.reshape(*values.shape[:-1], -1, lanes)
    total = steps[..., 0, :].copy()
    for step in range(1, steps.shape[-2]):
        total = rounded(total + steps[..., step, :])
    return total


def added_as_tree(lanes: np.ndarray, used: int) -> np.ndarray:
    """Add the first `used` lanes along the last axis, the second half to the first, until one is left."""
    lanes = lanes.copy()
    size = used
    while size > 1:
        half, rest = size // 2, (size + 1) // 2
        lanes[..., :half] = rounded(lanes[..., :half] + lanes[..., rest : rest + half])
        size = rest
    return lanes[..., 0]
