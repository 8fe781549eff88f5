"""TensorRT's element types as those of arrays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from dovetail.plugin import EngineError

__all__ = ["READ_TYPES", "array_type"]

_TYPES = {
    "FLOAT": np.dtype(np.float32),
    "HALF": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "INT8": np.dtype(np.int8),
    "UINT8": np.dtype(np.uint8),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "BOOL": np.dtype(np.bool_),
}

READ_TYPES = frozenset({"float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"})
"""The element types that an engine takes at its border."""


def array_type(name: str, tensor: str) -> np.dtype:
    """The type of the arrays of a tensor.

    Args:
        name: TensorRT's name of its type: `HALF`.
        tensor: The name of the tensor, for the message.

    Raises:
        EngineError: There are no such arrays.
    """
    if name not in _TYPES:
        raise EngineError(f"'{tensor}' has the type {name}, of which there are no arrays")
    return _TYPES[name]
