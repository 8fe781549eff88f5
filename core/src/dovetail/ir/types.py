"""Element types: names, and the lattice of float types."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


# Each float type with the types that represent all of its values. float16 has more precision and bfloat16 more range,
# so their join is float32.
FLOATS = {
    "float16": frozenset({"float16", "float32", "float64"}),
    "bfloat16": frozenset({"bfloat16", "float32", "float64"}),
    "float32": frozenset({"float32", "float64"}),
    "float64": frozenset({"float64"}),
}
_ORDER = tuple(FLOATS)
_ONNX_NAMES = {"float": "float32", "double": "float64"}


def promote(*names: str) -> str:
    """Return the join of `names` in the float lattice: `promote("float16", "bfloat16") == "float32"`.

    Raises:
        KeyError: A name is not one of `FLOATS`.
    """
    common = frozenset.intersection(*(FLOATS[name] for name in names))
    return next(name for name in _ORDER if name in common)


def our_name(text: str) -> str:
    """Return the Dovetail name of an onnx element type: `float32` for `float`."""
    return _ONNX_NAMES.get(text, text)


@cache
def dtype_name(dtype: ir.DataType) -> str:
    """Return the Dovetail name of an element type: `float32`, `bfloat16`, `int64`, `bool`."""
    return our_name(dtype.name.lower())


@cache
def from_name(name: str) -> ir.DataType:
    """Return the element type with this Dovetail name; the inverse of `dtype_name`.

    Raises:
        KeyError: There is no such type.
    """
    import onnx_ir as ir

    onnx_name = {ours: theirs for theirs, ours in _ONNX_NAMES.items()}.get(name, name)
    return ir.DataType[onnx_name.upper()]


def float_name(value: ir.Value | None) -> str | None:
    """Return the float type of `value`; None if it is not a float tensor or its type is unknown."""
    kind = None if value is None else value.type
    return _float_name(kind.dtype) if kind is not None and kind.__class__.__name__ == "TensorType" else None


@cache
def _float_name(dtype: ir.DataType) -> str | None:
    name = dtype_name(dtype)
    return name if name in FLOATS else None
