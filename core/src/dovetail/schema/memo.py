"""When two nodes ask the same question: the key under which an answer is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.schema.node_view import NodeView, extents_of
from dovetail.schema.operators import is_position, known_names
from dovetail.schema.rules import Rule

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["content_names", "question"]


def content_names(rule: Rule, facts: frozenset[str]) -> tuple[str, ...]:
    """The names in a rule whose value neither types nor attributes determine: these belong into the key."""
    names = {name for row in rule.rows for name in row.names}
    operator = known_names(rule.domain, rule.op_type)
    known = facts | operator.ports if operator else facts
    volatile = (".is_output", ".consumers")
    return tuple(sorted(n for n in names if n in known or is_position(n) or n.endswith(volatile)))


def question(view: NodeView, names: tuple[str, ...]) -> tuple:
    """All that an answer depends on, given the names of its rule from `content_names`."""
    node = view.node
    # `data` is the plain dictionary inside: this is asked of every node, once per backend.
    attributes = tuple(
        [(name, None if attr.is_ref() else _hashable(attr.value)) for name, attr in node.attributes.data.items()]
    )
    values = tuple([value and (_type_key(value), _shape_key(value), view.is_constant(value)) for value in view.inputs])
    results = tuple([(_type_key(value), _shape_key(value), bool(value.name)) for value in view.outputs])
    region = tuple(sorted(view.region.items())) if view.region else ()
    since = view.signature.version if view.signature else node.version
    content = tuple([view[name] for name in names])
    return node.domain, node.op_type, since, attributes, values, results, region, content


def _type_key(value: ir.Value) -> object:
    """Tells types apart; the element type is enough for tensors."""
    kind = value.type
    return kind.dtype if kind.__class__.__name__ == "TensorType" else str(kind)


def _shape_key(value: ir.Value) -> tuple | None:
    extents = extents_of(value)
    return None if extents is None else tuple(extents)


def _hashable(value: object) -> object:
    if isinstance(value, (int, float, str, bytes)):
        return type(value).__name__, value
    plain = isinstance(value, (tuple, list)) and all(isinstance(item, (int, float, str, bytes)) for item in value)
    return tuple(value) if plain else None
