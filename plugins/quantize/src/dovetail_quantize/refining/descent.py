"""Choice between rounding down and up by coordinate descent.

With input rows X and the output error t, a weight perturbation d leaves the error |t - X d|^2, where every element of d
is one of two numbers. A step takes the better one for one input, for all output channels at once, while all others stay
fixed, so the error never rises. X'X is the same for all channels, and the gradient of a step follows from it without
another pass over X. Working in blocks turns most of the updates into matrix products.
"""

from __future__ import annotations

import numpy as np

_BLOCK = 64  # inputs whose gradients are updated one by one


_MOST_INPUTS = 2048  # inputs whose products are in memory together


_MOST_SWEEPS = 10


_CERTAIN = 2  # standard deviations


_FEW = 1e-3  # fraction of the elements that changed in the last sweep


def choose(rows: np.ndarray, missing: np.ndarray, down: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Decide for every element of a weight whether to round it up.

    The sample is small for large layers, and most of the output error is noise of quantized inputs, which no weight
    removes. Hence correlations are shrunk by how well the sample supports them. Products of different inputs are
    weighted by N / (N + K), where N is the number of rows and K that of inputs. The correlation r between an input and
    the output error is weighted by 1 - 4 v / r^2, where v is the variance of r, and by zero below two standard
    deviations. With few rows, the result is rounding to nearest.

    Args:
        rows: Input rows of shape (groups, inputs, positions).
        missing: Output error with exact weights, of shape (groups, positions, outputs).
        down: Error of rounding down, zero or less, of shape (groups, inputs, outputs).
        up: Error of rounding up, in the same shape.

    Returns:
        Booleans in the shape of `down`.
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
    """Update `off` and `chosen` until hardly any step reduces the error; `gradient` is half the gradient."""
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
