"""Names of element types, and arrays that an engine's own binding cannot hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


TENSOR_TYPES = frozenset(
    {
        *("float64", "float32", "float16", "bfloat16"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
        *("bool", "string"),
    }
)
"""Element types that have a NumPy (or ml_dtypes) array at every border."""


def type_name(dtype: ir.DataType) -> str:
    """The lower-case name of an element type: `float32`, `bfloat16`, `string`."""
    import onnx_ir as ir

    return "string" if dtype is ir.DataType.STRING else dtype.numpy().name


def value_type(value: ir.Value | None) -> str:
    """The name of a value's element type, empty when it has none or is not a tensor."""
    import onnx_ir as ir

    if value is None or not isinstance(value.type, ir.TensorType) or value.type.dtype is ir.DataType.UNDEFINED:
        return ""
    return type_name(value.type.dtype)


def matches(array: np.ndarray, type_: str) -> bool:
    """Whether an array holds elements of the named type."""
    if type_ == "string":
        return array.dtype.kind in "OUST"
    return array.dtype.name == type_
