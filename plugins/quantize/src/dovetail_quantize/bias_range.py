"""Scales of weights beside a bias that is too large for the integers of its format.

A bias has the scale of the products that it is added to (`X*W`). Where the activation is nearly zero on all data, this
scale is so small that the bias would saturate, and the result would lose it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from dovetail.planning.holdings import Parameters

from dovetail_quantize.integers import bounds
from dovetail_quantize.products import product_of_scales
from dovetail_quantize.slices import slices

if TYPE_CHECKING:
    from dovetail_precision.held import Held


_MARGIN = 1 + 1e-6  # the product of two scales is rounded to float32


def weight_scale_for_bias(
    bias: Held, numbers: np.ndarray, weight: Held, factors: Mapping[str, Parameters]
) -> Parameters | None:
    """The parameters of a weight with which its bias fits: a scale is raised as far as necessary.

    Products that matter beside such a bias would overflow the accumulator, so what the weight loses matters less than
    the last bit of the bias.

    Args:
        bias: A constant whose scale is the product of others.
        numbers: Its numbers.
        weight: The one of these values that is a constant.
        factors: The parameters of these values, by port; those of the weight are among them.

    Returns:
        None if the bias fits.
    """
    product = product_of_scales(bias.format, list(factors.values()))
    largest = np.abs(slices(numbers.astype(np.float64), bias.format)).max(axis=1, initial=0)
    wanted = largest / bounds(bias.format)[1] * _MARGIN
    scale = np.asarray(product.scale)
    if wanted.size != scale.size or not (wanted > scale).any():
        return None
    raised = np.maximum(wanted / scale, 1)
    (port,) = (use.port for use in weight.uses if use.port in factors and use.node is bias.uses[0].node)
    given = np.asarray(factors[port].scale)
    found = given * (raised if given.size > 1 else raised.max())
    return Parameters(tuple(found.astype(np.float32).astype(np.float64).tolist()), factors[port].zero_point)
