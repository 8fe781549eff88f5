"""Choosing between rounding down and up by coordinate descent.

With rows X of inputs and what their results lack, t, a weight that is off by d has the error |t - X d|^2, where every
element of d is one of two numbers. A step takes the better one for one input, for all output channels at once, while
all others stay, so the error never rises. X'X is the same for all channels, and the gradient of a step is known from it
without another look at X. Working in blocks turns most of the updates into products of matrices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    pass


_BLOCK = 64  # inputs whose gradients are updated one by one


_MOST_INPUTS = 2048  # whose products are in memory


_MOST_SWEEPS = 10


_CERTAIN = 2  # standard deviations


_FEW = 1e-3  # share of the elements that changed in the last sweep


def choose(rows: np.ndarray, missing: np.ndarray, down: np.ndarray, up: np.ndarray) -> np.ndarray:
    """For every element of a weight, whether to round it up.

    The sample is small for large layers, and what results lack is mostly the noise of quantized inputs, which no weight
    removes; so only what the sample supports counts. Products of different inputs count by N / (N + K), where N is the
    number of rows and K that of inputs. The correlation r between an input and what a result lacks counts by
    1 - 4 v / r^2, where v is the variance of r, and not at all below two standard deviations. With few rows, this is
    rounding to nearest.

    Args:
        rows: Inputs: groups, inputs, positions.
        missing: What their results lack with exact weights: groups, positions, outputs.
        down: What rounding down adds to the weight, zero or less: groups, inputs, outputs.
        up: What rounding up adds.

    Returns:
        Truth values in the shape of `down`.
    """
    chosen = np.abs(up) < np.abs(down)
    off = np.where(chosen, up, down)
    inputs, count = rows.shape[1:]
    support = np.float32(count / (count + inputs))
    error = rows.swapaxes(1, 2) @ off
    noise = np.mean(missing**2, axis=1, keepdims=True) * (_CERTAIN**2 / count)
    for start in range(0, inputs, _MOST_INPUTS):
        part = slice(start, start + _MOST_INPUTS)
        own = rows[:, part]
        products = own @ own.swapaxes(1, 2) * (support / count)
        diagonal = products[:, *[np.arange(products.shape[1])] * 2] / support
        products[:, *[np.arange(products.shape[1])] * 2] = diagonal
        pull = own @ missing / count
        supported = pull**2 > diagonal[:, :, None] * noise
        pull *= 1 - np.divide(diagonal[:, :, None] * noise, pull**2, out=np.ones_like(pull), where=supported)
        gradient = (1 - support) * diagonal[:, :, None] * off[:, part] + own @ error * (support / count) - pull
        before = off[:, part].copy()
        _descend(products, gradient, off[:, part], chosen[:, part], down[:, part], up[:, part])
        if inputs > _MOST_INPUTS:
            error += own.swapaxes(1, 2) @ (off[:, part] - before)
    return chosen


def _descend(
    products: np.ndarray, gradient: np.ndarray, off: np.ndarray, chosen: np.ndarray, down: np.ndarray, up: np.ndarray
) -> None:
    """Change `off` and `chosen` until hardly any step gains anything; `gradient` is half of it."""
    inputs = products.shape[1]
    for _ in range(_MOST_SWEEPS):
        changed = 0
        for start in range(0, inputs, _BLOCK):
            block = slice(start, min(start + _BLOCK, inputs))
            near, slope, moved = products[:, block, block], gradient[:, block].copy(), np.zeros_like(off[:, block])
            for index in range(near.shape[1]):
                at = start + index
                step = np.where(chosen[:, at], down[:, at], up[:, at]) - off[:, at]
                gains = step * (2 * slope[:, index] + step * near[:, index, index, None]) < 0
                if not gains.any():
                    continue
                step = np.where(gains, step, 0)
                chosen[:, at] ^= gains
                off[:, at] = np.where(chosen[:, at], up[:, at], down[:, at])
                slope += near[:, :, index, None] * step[:, None, :]
                moved[:, index] = step
                changed += int(gains.sum())
            if moved.any():
                gradient += products[:, :, block] @ moved
        if changed <= _FEW * off.size:
            return
