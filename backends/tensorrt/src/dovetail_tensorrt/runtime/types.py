"""TensorRT's element types as those of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import EngineError

if TYPE_CHECKING:
    import numpy as np


_TYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}

READ_TYPES = frozenset(_TYPES.values())
"""The element types that an engine takes at its border."""


def array_type(name: str, tensor: str) -> np.dtype:
    """The type of the arrays of a tensor.

    Args:
        name: TensorRT's name of its type: `HALF`.
        tensor: The name of the tensor, for the message.

    Raises:
        EngineError: There are no such arrays.
    """
    import ml_dtypes
    import numpy as np

    if name not in _TYPES:
        raise EngineError(f"'{tensor}' has the type {name}, of which there are no arrays")
    return np.dtype(ml_dtypes.bfloat16 if name == "BF16" else _TYPES[name])
