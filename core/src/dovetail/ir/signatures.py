"""What a node's operator says of its ports: names, types that must agree, and types that are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Port", "Signature", "find", "input_name", "output_name", "signature"]


@dataclass(frozen=True, slots=True)
class Port:
    """One formal input or output.

    Attributes:
        name: As the operator's schema calls it.
        parameter: The type parameter that its type must agree in (`T`), or the one type it has.
        allowed: Types it may have, as onnx writes them (`tensor(float)`).
        variadic: It takes any number of values.
        homogeneous: All values of a variadic port have one type.
        optional: It may be left out.
    """

    name: str
    parameter: str
    allowed: frozenset[str]
    variadic: bool = False
    homogeneous: bool = True
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """An operator at one version."""

    domain: str
    op_type: str
    version: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    attributes: frozenset[str]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int

    def input(self, index: int) -> Port | None:
        """The formal input that actual input `index` belongs to; None beyond the last."""
        return _formal(self.inputs, index)

    def output(self, index: int) -> Port | None:
        """The formal output that actual output `index` belongs to; None beyond the last."""
        return _formal(self.outputs, index)


def _formal(formals: tuple[Port, ...], index: int) -> Port | None:
    if index < len(formals):
        return formals[index]
    return formals[-1] if formals and formals[-1].variadic else None


def input_name(index: int, sig: Signature | None) -> str:
    """What plans and backend files call input `index`: its port, or `in2` for one of a variadic port."""
    formal = sig and sig.input(index)
    return formal.name if formal and not formal.variadic else f"in{index}"


def output_name(index: int, sig: Signature | None) -> str:
    """What plans and backend files call output `index`: its port, or `out2` for one of a variadic port."""
    formal = sig and sig.output(index)
    return formal.name if formal and not formal.variadic else f"out{index}"


def signature(node: ir.Node, opsets: Mapping[str, int]) -> Signature | None:
    """The signature of `node` in a model that imports `opsets`; None for an operator nobody describes.

    Sources: onnx's registered schemas, then ONNX Runtime's own (`com.microsoft` and the like).
    """
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = node.version if node.version is not None else opsets.get(domain, opsets.get("ai.onnx", 1))
    return find(domain, node.op_type, version)


@cache
def find(domain: str, op_type: str, version: int) -> Signature | None:
    """The signature of an operator in the newest form that is not newer than `version`."""
    import onnx

    try:
        return _convert(onnx.defs.get_schema(op_type, version, domain))
    except onnx.defs.SchemaError:
        pass
    schemas = [s for s in _runtime_schemas().get((domain, op_type), ()) if s.since_version <= version]
    return _convert(max(schemas, key=lambda s: s.since_version)) if schemas else None


@cache
def _runtime_schemas() -> dict[tuple[str, str], list]:
    """Schemas that only ONNX Runtime registers, read once and only when a model needs one."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    table: dict[tuple[str, str], list] = {}
    for schema in state.get_all_operator_schema():
        if schema.domain not in ("", "ai.onnx"):
            table.setdefault((schema.domain, schema.name), []).append(schema)
    return table


def _convert(schema) -> Signature:
    parameters = {p.type_param_str: frozenset(p.allowed_type_strs) for p in schema.type_constraints}

    def port(formal) -> Port:
        # Both libraries number their options alike: 0 single, 1 optional, 2 variadic.
        option = formal.option.name if hasattr(formal.option, "name") else str(formal.option).rpartition(".")[2]
        text = formal.type_str if hasattr(formal, "type_str") else formal.typeStr
        return Port(
            formal.name,
            text,
            parameters.get(text, frozenset({text})),
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
        schema.min_input,
        schema.max_input,
        schema.min_output,
        schema.max_output,
    )
