"""Arrays in the float types that a model takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.ir.required import dtype_of, name_of
from dovetail.ir.types import float_name

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir.model import Model


def fitted(model: Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`feeds` in the float types that `model` takes; data rarely has them, because NumPy's files know no bfloat16."""
    found = dict(feeds)
    for value in model.graph.inputs:
        name = name_of(value)
        array = found.get(name)
        kind = array.dtype.kind if array is not None and getattr(array, "dtype", None) is not None else ""
        if array is not None and kind == "f" and float_name(value) is not None:
            found[name] = array.astype(dtype_of(value).numpy(), copy=False)
    return found
