"""Element types of Paddle: protobuf numbers, PIR names, and ONNX types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


BY_NUMBER = {
    0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32", 6: "float64", 20: "uint8", 21: "int8",
    22: "bfloat16", 23: "complex64", 24: "complex128", 32: "float8_e4m3fn", 33: "float8_e5m2", 36: "uint16",
    37: "uint32", 38: "uint64",
}  # fmt: skip
"""Type names by number in `VarType.Type`."""

BY_TAG = {
    "t_bool": "bool", "t_i16": "int16", "t_i32": "int32", "t_i64": "int64", "t_f16": "float16", "t_f32": "float32",
    "t_f64": "float64", "t_ui8": "uint8", "t_i8": "int8", "t_bf16": "bfloat16", "t_c64": "complex64",
    "t_c128": "complex128", "t_f8e4m3fn": "float8_e4m3fn", "t_f8e5m2": "float8_e5m2", "t_ui16": "uint16",
    "t_ui32": "uint32", "t_ui64": "uint64", "t_index": "int64",
}  # fmt: skip
"""Type names by tag in PIR programs."""

BY_NAME = {
    "bool": "BOOL", "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FLOAT16", "float32": "FLOAT",
    "float64": "DOUBLE", "uint8": "UINT8", "int8": "INT8", "bfloat16": "BFLOAT16", "complex64": "COMPLEX64",
    "complex128": "COMPLEX128", "float8_e4m3fn": "FLOAT8E4M3FN", "float8_e5m2": "FLOAT8E5M2", "uint16": "UINT16",
    "uint32": "UINT32", "uint64": "UINT64",
}  # fmt: skip
"""ONNX type names by Paddle type name."""

NAMES = {onnx: name for name, onnx in BY_NAME.items()}
"""Paddle type names by ONNX type name."""


def of_number(number: int) -> str | None:
    """Return the name of an element type by its number in a legacy program, or None."""
    return BY_NUMBER.get(number)


def onnx_type(name: str) -> ir.DataType | None:
    """Return the ONNX type of a Paddle type; None for `undefined` and unknown names."""
    import onnx_ir as ir

    found = BY_NAME.get(name)
    return None if found is None else ir.DataType[found]


def element_type(name: str) -> ir.DataType:
    """Return the ONNX type of a valid Paddle type."""
    import onnx_ir as ir

    return ir.DataType[BY_NAME[name]]


_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_FRAMEWORK = re.compile(r"(^|/)(paddle|site-packages|dist-packages)/")


def source_line(stack: Sequence[str]) -> str:
    """Return `file:line` of the innermost frame outside of Paddle, or of the innermost frame; empty if there is none.

    Args:
        stack: The entries of an attribute `op_callstack`: frames as Python prints them, outermost first.
    """
    frames = [found.groups() for entry in stack for found in _LINE.finditer(entry)]
    own = [frame for frame in frames if not _FRAMEWORK.search(frame[0])]
    chosen = (own or frames)[-1:]
    return f"{chosen[0][0]}:{chosen[0][1]}" if chosen else ""
