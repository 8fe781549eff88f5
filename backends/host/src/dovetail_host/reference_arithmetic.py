"""Replacements for arithmetic operators that the evaluator of the onnx package computes wrongly or lacks.

In the evaluator (1.23), LpNormalization sums signed values, ConvTranspose miscounts groups and LRN neighbors,
GlobalMaxPool reduces wrong axes unless there are two spatial ones, RoiAlign of old opsets is shifted by half a pixel,
Mean fails if shapes broadcast, Softsign fails for scalars, and GlobalLpPool is missing.
"""

from __future__ import annotations

import functools

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_conv_transpose, op_roi_align

__all__ = ["ConvTranspose", "GlobalLpPool", "GlobalMaxPool", "LRN", "LpNormalization", "Mean", "RoiAlign", "Softsign"]


class GlobalLpPool(OpRun):
    """p-norm of every channel; the evaluator lacks this operator, and ONNX Runtime lacks it at opset 22."""

    op_domain = ""

    def _run(self, x, p=None):
        power = 2 if p is None else p
        wide = np.abs(x.astype(np.float64))
        norm = (wide**power).sum(axis=tuple(range(2, x.ndim)), keepdims=True) ** (1 / power)
        return (norm.astype(x.dtype),)


class GlobalMaxPool(OpRun):
    """Largest element of every channel, for any number of spatial axes."""

    op_domain = ""

    def _run(self, x):
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class ConvTranspose(op_conv_transpose.ConvTranspose):
    """Transposed convolution, group by group."""

    op_domain = ""

    def _run(self, x, w, bias=None, group=None, **options):
        if (group or 1) == 1:
            return super()._run(x, w, bias, group=1, **options)
        parts = zip(np.split(x, group, axis=1), np.split(w, group, axis=0))
        made = np.concatenate([super(ConvTranspose, self)._run(*part, group=1, **options)[0] for part in parts], axis=1)
        return (made if bias is None else made + bias.reshape(1, -1, *[1] * (x.ndim - 2)),)


class LRN(OpRun):
    """Division by the mean square of neighboring channels, clipped at the ends."""

    op_domain = ""

    def _run(self, x, alpha=None, beta=None, bias=None, size=None):
        before, channels = (size - 1) // 2, x.shape[1]
        squares = x.astype(np.float64) ** 2
        sums = np.empty_like(squares)
        for channel in range(channels):
            window = slice(max(channel - before, 0), channel + size - before)
            sums[:, channel] = squares[:, window].sum(axis=1)
        return ((x / (bias + alpha / size * sums) ** beta).astype(x.dtype),)


class LpNormalization(OpRun):
    """Division by the p-norm, a sum over magnitudes."""

    op_domain = ""

    def _run(self, x, axis=None, p=None):
        norm = (np.abs(x.astype(np.float64)) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
        return (np.divide(x, norm, out=np.zeros_like(norm * x), where=norm != 0).astype(x.dtype),)


class Mean(OpRun):
    """Mean of arrays that broadcast to a common shape."""

    op_domain = ""

    def _run(self, *arrays):
        return ((functools.reduce(np.add, arrays) / len(arrays)).astype(arrays[0].dtype),)


class RoiAlign(op_roi_align.RoiAlign):
    """RoiAlign without the half-pixel shift before opset 16, which had no attribute for it."""

    op_domain = ""

    def _run(self, *args, **options):
        if self.run_params["opsets"].get("", 16) < 16:
            options["coordinate_transformation_mode"] = "output_half_pixel"
        return super()._run(*args, **options)


class Softsign(OpRun):
    """x / (1 + |x|), also for scalars."""

    op_domain = ""

    def _run(self, x):
        return (np.asarray(x / (1 + np.abs(x)), x.dtype),)
