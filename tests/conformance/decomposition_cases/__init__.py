"""Nodes of the operators that have a decomposition, by family."""

import numpy as np

from ..decomposing import TYPES


def numbers(*shape, seed=0, spread=1.0, dtype="float32"):
    """Normal random numbers."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.standard_normal(shape) * spread).astype(TYPES.get(dtype, dtype))


def whole(low, high, *shape, seed=0, dtype=np.int32):
    """Random integers below `high`."""
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)
