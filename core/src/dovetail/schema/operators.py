"""What the operator schemas of onnx say: names of operators, ports and attributes, and the types of a port.

onnx is imported at the first question, so that listing backends stays fast.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnx.defs import OpSchema

__all__ = [
    "FLOATS", "Formal", "Names", "Signature", "dtype_name", "is_position", "known_names", "later_name",
    "operator_names", "port_names", "signature", "version_of",
]  # fmt: skip

FLOATS = frozenset({
    "float64", "float32", "float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
    "float8e8m0", "float6e2m3", "float6e3m2", "float4e2m1",
})  # fmt: skip
_RENAMED = {"float": "float32", "double": "float64", "undefined": ""}
_TENSOR = re.compile(r"tensor\((\w+)\)")
_POSITION = re.compile(r"(in|out)(\d+)")
_LATER_PORTS = {"k": "K"}
"""Attributes that became an input under another name; all others kept theirs."""


@dataclass(frozen=True, slots=True)
class Formal:
    """A port of an operator at one version.

    Attributes:
        name: Its name; the elements of a variadic port are called `in0`, `in1`, ... or `out0`, ...
        variable: Its type parameter (`T`), or the type itself; ports with the same one have the same type.
        dtypes: Names of the element types that a tensor there may have.
        variadic: It stands for any number of values.
    """

    name: str
    variable: str
    dtypes: frozenset[str]
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """An operator at one version.

    Attributes:
        since: The version of the domain that brought it.
        inputs: Its input ports.
        outputs: Its output ports.
        defaults: Attributes with a default.
        attributes: Names of all its attributes.
    """

    since: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    defaults: dict[str, object]
    attributes: frozenset[str]

    def formal(self, index: int, output: bool = False) -> Formal | None:
        """The port of the value at `index`; beyond the last one only a variadic port goes on."""
        ports = self.outputs if output else self.inputs
        if index < len(ports):
            return ports[index]
        return ports[-1] if ports and ports[-1].variadic else None


@dataclass(frozen=True, slots=True)
class Names:
    """What a file may call the parts of an operator, over all versions of it.

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
    """The element type of a value as we write it (`float32`, `int64`), or an empty text if it is not known."""
    if value.dtype is None:
        return ""
    name = value.dtype.name.lower()
    return _RENAMED.get(name, name)


def is_position(port: str) -> bool:
    """Is it one of `in0`, `in1`, ..., `out0`, ..."""
    return _POSITION.fullmatch(port) is not None


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, dict[str, list[OpSchema]]]:
    """All registered schemas by domain and operator, oldest first."""
    from onnx import defs

    found: dict[str, dict[str, list[OpSchema]]] = {}
    for schema in defs.get_all_schemas_with_history():
        found.setdefault(schema.domain, {}).setdefault(schema.name, []).append(schema)
    for operators in found.values():
        for versions in operators.values():
            versions.sort(key=lambda schema: schema.since_version)
    return found


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def operator_names(domain: str) -> frozenset[str]:
    """All operators of a domain; empty for a domain that onnx does not know."""
    return frozenset(_catalogue().get(_domain(domain), {}))


@lru_cache(maxsize=512)
def known_names(domain: str, op_type: str) -> Names | None:
    """The names of one operator's parts, or None when onnx does not know the operator."""
    versions = _catalogue().get(_domain(domain), {}).get(op_type)
    if not versions:
        return None
    return Names(
        frozenset(port.name for schema in versions for port in schema.inputs),
        frozenset(port.name for schema in versions for port in schema.outputs),
        frozenset(name for schema in versions for name in schema.attributes),
    )


@lru_cache(maxsize=1024)
def signature(domain: str, op_type: str, version: int | None) -> Signature | None:
    """The operator at a version of its domain (None: the newest), or None when onnx does not know it."""
    versions = _catalogue().get(_domain(domain), {}).get(op_type, ())
    fitting = [schema for schema in versions if version is None or schema.since_version <= version]
    if not fitting:
        return None
    from onnx.helper import get_attribute_value

    schema = fitting[-1]
    constraints = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    defaults = {
        name: _plain(get_attribute_value(attribute.default_value))
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    return Signature(
        schema.since_version,
        tuple(_formal(schema, port, constraints) for port in schema.inputs),
        tuple(_formal(schema, port, constraints) for port in schema.outputs),
        defaults,
        frozenset(schema.attributes),
    )


def port_names(node: ir.Node, opset: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a node's ports, one for each of its inputs and outputs: `("X", "W", "B"), ("Y",)`.

    Elements of a variadic port, and ports of an operator that onnx does not know, are called by position: `in0`.
    """
    found = signature(node.domain, node.op_type, version_of(node, opset))

    def name(index: int, output: bool) -> str:
        formal = found.formal(index, output) if found else None
        return formal.name if formal and not formal.variadic else f"{'out' if output else 'in'}{index}"

    return (
        tuple(name(i, False) for i in range(len(node.inputs))),
        tuple(name(i, True) for i in range(len(node.outputs))),
    )


def version_of(node: ir.Node, opset: int) -> int | None:
    """The version of its domain at which the node counts; None (the newest) where nothing says so."""
    if node.version is not None:
        return node.version
    if _domain(node.domain) == "":
        return opset
    graph = node.graph
    imports = getattr(graph, "opset_imports", None) or {}
    return imports.get(node.domain)


def later_name(attribute: str) -> str:
    """The input that an attribute of an old version became, where its name changed."""
    return _LATER_PORTS.get(attribute, attribute)


def _formal(schema: OpSchema, port: OpSchema.FormalParameter, constraints: dict[str, list[str]]) -> Formal:
    variadic = port.option == type(schema).FormalParameterOption.Variadic
    types = constraints.get(port.type_str, [port.type_str])
    dtypes = frozenset(_RENAMED.get(m[1], m[1]) for m in map(_TENSOR.fullmatch, types) if m)
    # The elements of a heterogeneous variadic port have types of their own.
    variable = "" if variadic and not port.is_homogeneous else port.type_str
    return Formal(port.name, variable, dtypes, variadic)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value
