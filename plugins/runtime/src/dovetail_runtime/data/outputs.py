"""Outputs as arrays: what is a sequence or a map is taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def arrays_of(name: str, value: object) -> dict[str, np.ndarray]:
    """The arrays in one output, by name: `scores` for a tensor, `scores[0]` in a sequence, `scores['cat']` in a map.

    A list of maps of numbers, which is what classifiers of scikit-learn give, becomes one array per key. Nothing is
    there of an optional output that is empty.
    """
    import numpy as np

    if value is None:
        return {}
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, Mapping) for item in value):
        return {f"{name}[{key!r}]": np.asarray([item.get(key, np.nan) for item in value]) for key in value[0]}
    if isinstance(value, Mapping):
        items = ((f"{name}[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        items = ((f"{name}[{index}]", item) for index, item in enumerate(value))
    else:
        return {name: np.asarray(value)}
    return {inner: array for label, item in items for inner, array in arrays_of(label, item).items()}
