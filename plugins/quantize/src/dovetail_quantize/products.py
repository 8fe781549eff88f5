"""Scales that are products of others, as those of accumulators and biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from dovetail.planning.holdings import Parameters

if TYPE_CHECKING:
    from dovetail.ir.formats import Format


def product_of_scales(format_: Format, factors: Sequence[Parameters]) -> Parameters:
    """The product, computed in float32 as integer kernels do; it has an axis where one of the factors has."""
    scale = np.ones(1, np.float32)
    for factor in factors:
        # Where both activation and weight are tiny, the product would be zero, which is no scale.
        scale = np.maximum(scale * np.asarray(factor.scale, np.float32), np.finfo(np.float32).tiny)
    return Parameters(tuple(scale.astype(np.float64).tolist()), (0,) * scale.size)
