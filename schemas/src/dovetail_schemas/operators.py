"""Valid names of operators and their parts in files, over all versions in onnx.

For an operator at one version, see `dovetail_onnx.signatures`. onnx is imported on first use, so that listing backends
stays fast.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import dtype_name as plain_name
from dovetail_onnx.signatures import find_signature as signature

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnx.defs import OpSchema

__all__ = [
    "FLOATS", "Names", "dtype_name", "is_operator", "is_position", "known_names", "later_name", "operator_names",
    "signature",
]  # fmt: skip

FLOATS = frozenset({
    "float64", "float32", "float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
    "float8e8m0", "float6e2m3", "float6e3m2", "float4e2m1",
})  # fmt: skip
_POSITION = re.compile(r"(in|out)(\d+)")
_LATER_PORTS = {"k": "K"}
"""Attributes that became an input under another name; all others kept theirs."""


class Names(NamedTuple):
    """Valid names in files for the parts of an operator, over all of its versions.

    Attributes:
        inputs: Input ports.
        outputs: Output ports.
        attributes: Attributes.
    """

    inputs: frozenset[str]
    outputs: frozenset[str]
    attributes: frozenset[str]

    @property
    def ports(self) -> frozenset[str]:
        """All ports."""
        return self.inputs | self.outputs


def dtype_name(value: ir.Value) -> str:
    """Return the element type of a value in Dovetail's spelling (`float32`, `int64`); empty if unknown."""
    name = "undefined" if value.dtype is None else plain_name(value.dtype)
    return "" if name == "undefined" else name


def is_position(port: str) -> bool:
    """Check for a positional name: `in0`, `in1`, ..., `out0`, ..."""
    return _POSITION.fullmatch(port) is not None


@lru_cache(maxsize=1)
def _catalog() -> dict[str, dict[str, list[OpSchema]]]:
    """Return all registered schemas, of every version, by domain and operator."""
    from onnx import defs

    found: dict[str, dict[str, list[OpSchema]]] = {}
    for schema in defs.get_all_schemas_with_history():
        found.setdefault(schema.domain, {}).setdefault(schema.name, []).append(schema)
    return found


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


_OF_RUNTIME = frozenset({
    "Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh",
    "SimplifiedLayerNormalization",
})  # fmt: skip
"""Operators that ONNX Runtime has kernels for in the default domain, although ONNX does not define them."""


def is_operator(domain: str, op_type: str) -> bool:
    """Check whether a file may name an operator: one that onnx or ONNX Runtime defines, or of an unknown domain."""
    names = operator_names(domain)
    return not names or op_type in names or not _domain(domain) and op_type in _OF_RUNTIME


@lru_cache(maxsize=64)
def operator_names(domain: str) -> frozenset[str]:
    """Return all operators of a domain; empty if onnx does not know it."""
    return frozenset(_catalog().get(_domain(domain), {}))


@lru_cache(maxsize=512)
def known_names(domain: str, op_type: str) -> Names | None:
    """Return the names of an operator's parts; None if onnx does not know the operator."""
    versions = _catalog().get(_domain(domain), {}).get(op_type)
    if not versions:
        return None
    return Names(
        frozenset(port.name for schema in versions for port in schema.inputs),
        frozenset(port.name for schema in versions for port in schema.outputs),
        frozenset(name for schema in versions for name in schema.attributes),
    )


def later_name(attribute: str) -> str:
    """Return the input that an attribute of an old version became, if its name changed."""
    return _LATER_PORTS.get(attribute, attribute)
