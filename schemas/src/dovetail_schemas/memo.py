"""When two nodes ask the same question: the key under which an answer is kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from dovetail_schemas.operators import is_position, known_names
from dovetail_schemas.rules import Rule

if TYPE_CHECKING:
    import onnx_ir as ir


_SCALARS, _LISTS = frozenset({1, 2, 3}), frozenset({6, 7, 8})  # onnx.AttributeProto.AttributeType


def content_names(rule: Rule, facts: frozenset[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The facts in a rule, and its other names whose value neither types nor attributes determine.

    What they stand for belongs into the key. A name that a shape gives is an extent, even if a port has that name.
    """
    operator = known_names(rule.domain, rule.op_type)
    known, listed = (operator.ports, operator.attributes) if operator else ((), ())
    names: set[str] = set()
    for row in rule.rows:
        names |= row.names - {name for pattern in row.patterns for name in pattern.names}
        names |= {pattern.target for pattern in row.patterns if pattern.target in listed}
    volatile = (".is_output", ".consumers")
    others = (n for n in names - facts if n in known or is_position(n) or n.endswith(volatile))
    return tuple(sorted(names & facts)), tuple(sorted(others))


def question(node: ir.Node, constants: Collection[str], region: Mapping[str, object] | None) -> tuple:
    """What an answer depends on apart from facts and the names of `content_names`.

    This is asked of every node, once per backend.
    """
    # `data` is the plain dictionary inside.
    written = node.attributes.data
    attributes = tuple([(name, attr.type, _content(attr)) for name, attr in written.items()]) if written else ()
    values = tuple([value and (_key(value), is_constant(value, constants)) for value in node.inputs])
    results = tuple([(_key(value), bool(value.name)) for value in node.outputs])
    return (
        node.op_type,
        node.domain,
        node.version,
        attributes,
        values,
        results,
        tuple(sorted(region.items())) if region else None,
    )


def is_constant(value: ir.Value, constants: Collection[str]) -> bool:
    """Is it known before run time, or named among `constants`; says so without reading its content."""
    if value.const_value is not None:
        return True
    producer = value.producer()
    made = producer is not None and producer.op_type == "Constant" and not producer.domain
    return made or value.name in constants


def _key(value: ir.Value) -> tuple:
    """Tells types and shapes apart; the element type is enough for tensors."""
    kind, shape = value.type, value.shape
    return (
        kind.dtype if kind is not None and kind.__class__.__name__ == "TensorType" else str(kind),
        None if shape is None else shape.dims,
    )


def _content(attribute: ir.Attr) -> object:
    """What a limit may read of an attribute; tensors, graphs and references have nothing."""
    if attribute.is_ref():
        return None
    if attribute.type in _SCALARS:
        return attribute.value
    return tuple(attribute.value) if attribute.type in _LISTS else None
