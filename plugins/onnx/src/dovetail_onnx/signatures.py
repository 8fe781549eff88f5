"""Signatures of operators: the only module that reads operator schemas.

onnx is imported on first use, so that listing backends stays fast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import our_name

from dovetail_onnx.native_runtime import native_state

if TYPE_CHECKING:
    import onnx_ir as ir


Opsets = Mapping[str, int] | int
"""Versions of the imported domains; a number is the version of the default domain."""

_TENSOR = re.compile(r"tensor\((\w+)\)")


class Port(NamedTuple):
    """One formal input or output.

    Attributes:
        name: Its name in the schema.
        parameter: Its type parameter (`T`), or its only type.
        allowed: Allowed types, in onnx's notation (`tensor(float)`).
        dtypes: Allowed element types of tensors, in our notation (`float32`).
        variadic: It accepts any number of values.
        homogeneous: All values of a variadic port have one type.
        optional: It may be omitted.
    """

    name: str
    parameter: str
    allowed: frozenset[str]
    dtypes: frozenset[str]
    variadic: bool = False
    homogeneous: bool = True
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of one version of an operator.

    Attributes:
        version: The version of its domain that introduced it.
        attribute_types: The type of every attribute, as a number of `onnx.AttributeProto.AttributeType`.
        required: Names of the mandatory attributes.
    """

    domain: str
    op_type: str
    version: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    attributes: frozenset[str]
    defaults: Mapping[str, object]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    attribute_types: Mapping[str, int]
    required: frozenset[str]

    def input(self, index: int) -> Port | None:
        """Return the formal input of actual input `index`; None beyond the last."""
        return _formal(self.inputs, index)

    def output(self, index: int) -> Port | None:
        """Return the formal output of actual output `index`; None beyond the last."""
        return _formal(self.outputs, index)


def _formal(formals: tuple[Port, ...], index: int) -> Port | None:
    if index < len(formals):
        return formals[index]
    return formals[-1] if formals and formals[-1].variadic else None


def input_name(index: int, sig: Signature | None) -> str:
    """Return the name of input `index` in plans and backend files: its port, or `in2` within a variadic port."""
    formal = sig and sig.input(index)
    return formal.name if formal and not formal.variadic else f"in{index}"


def output_name(index: int, sig: Signature | None) -> str:
    """Return the name of output `index` in plans and backend files: its port, or `out2` within a variadic port."""
    formal = sig and sig.output(index)
    return formal.name if formal and not formal.variadic else f"out{index}"


def port_names(node: ir.Node, opsets: Opsets) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a node's inputs and outputs: `("X", "W", "B"), ("Y",)`.

    Elements of a variadic port, and ports of an operator without a schema, are named by position: `in0`.
    """
    sig = signature(node, opsets)
    return (
        tuple(input_name(index, sig) for index in range(len(node.inputs))),
        tuple(output_name(index, sig) for index in range(len(node.outputs))),
    )


class Signatures:
    """The signatures of one model's nodes, cached per operator."""

    def __init__(self, opsets: Opsets):
        self._opsets = opsets
        self._known: dict[tuple[str, str, int | None], Signature | None] = {}

    def __call__(self, node: ir.Node) -> Signature | None:
        """Return the signature of `node`; see `signature`."""
        key = (node.op_type, node.domain, node.version)
        if key not in self._known:
            self._known[key] = signature(node, self._opsets)
        return self._known[key]


def signature(node: ir.Node, opsets: Opsets) -> Signature | None:
    """Return the signature of `node` in a model that imports `opsets`; None for an operator without a schema."""
    return find_signature(node.domain, node.op_type, node.version or _imported(node.domain, opsets))


def _imported(domain: str, opsets: Opsets) -> int | None:
    """Return the version of `domain`; without an import, 1 for the default domain and None for others."""
    known = {"": opsets} if isinstance(opsets, int) else opsets
    return known.get("", known.get("ai.onnx", 1)) if domain in ("", "ai.onnx") else known.get(domain)


@cache
def find_signature(domain: str, op_type: str, version: int | None) -> Signature | None:
    """Return the newest signature of an operator up to `version` (None: the newest); None without a schema.

    Sources: onnx's registered schemas, then those of ONNX Runtime (`com.microsoft` and others).
    """
    import onnx

    domain = "" if domain == "ai.onnx" else domain
    wanted = (op_type, domain) if version is None else (op_type, version, domain)
    try:
        return _convert(onnx.defs.get_schema(*wanted))
    except onnx.defs.SchemaError:
        schemas = _runtime_schemas().get((domain, op_type), ())
    fitting = [schema for schema in schemas if version is None or schema.since_version <= version]
    return _convert(max(fitting, key=lambda schema: schema.since_version)) if fitting else None


@cache
def _runtime_schemas() -> dict[tuple[str, str], list]:
    """ONNX Runtime's schemas, some of them in the default domain, read once and only when onnx has none.

    Empty where ONNX Runtime is not installed.
    """
    try:
        state = native_state()
    except ImportError:
        return {}
    table: dict[tuple[str, str], list] = {}
    for schema in state.get_all_operator_schema():
        table.setdefault((schema.domain, schema.name), []).append(schema)
    return table


def _convert(schema) -> Signature:
    parameters = {p.type_param_str: frozenset(p.allowed_type_strs) for p in schema.type_constraints}

    def port(formal) -> Port:
        # Both libraries use the same option names: single, optional, variadic.
        option = formal.option.name if hasattr(formal.option, "name") else str(formal.option).rpartition(".")[2]
        text = formal.type_str if hasattr(formal, "type_str") else formal.typeStr
        allowed = parameters.get(text, frozenset({text}))
        return Port(
            formal.name,
            text,
            allowed,
            frozenset(our_name(tensor[1]) for tensor in map(_TENSOR.fullmatch, allowed) if tensor),
            option.lower() == "variadic",
            getattr(formal, "is_homogeneous", getattr(formal, "isHomogeneous", True)),
            option.lower() == "optional",
        )

    return Signature(
        schema.domain,
        schema.name,
        schema.since_version,
        tuple(map(port, schema.inputs)),
        tuple(map(port, schema.outputs)),
        frozenset(schema.attributes),
        _defaults(schema),
        schema.min_input,
        schema.max_input,
        schema.min_output,
        schema.max_output,
        {name: int(attribute.type.value) for name, attribute in schema.attributes.items()},
        frozenset(name for name, attribute in schema.attributes.items() if attribute.required),
    )


def _defaults(schema) -> dict[str, object]:
    """Return the default values of attributes that have one."""
    from onnx import AttributeProto, helper

    found = {}
    for name, attribute in schema.attributes.items():
        default = getattr(attribute, "default_value", None)
        if default is None:  # ONNX Runtime returns the message serialized
            default = AttributeProto.FromString(attribute._default_value)
        if default.name:
            found[name] = _plain(helper.get_attribute_value(default))
    return found


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value
