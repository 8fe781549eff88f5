"""Rows of a plan file: nodes, joins and source nodes, one per line."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dovetail.errors import DovetailError
from dovetail.ir.formats import Format
from dovetail.planning.join import Join
from dovetail.planning.plan_entries import PlannedNode, SourceNode

NODE_FIELDS = {field.name for field in fields(PlannedNode)}
_JOIN = ("value", "from", "to", "kind", "at", "bytes")
_UNUSUAL = {"origin", "kind", "ports"}


def node_row(node: PlannedNode) -> list[Any]:
    """Return [name, output, operator, backend/precision, region, key, {fields that differ from their defaults}]."""
    placement = f"{node.backend}/{node.precision}" if node.precision else node.backend
    row = [node.name, node.output, node.operator, placement, node.region, node.key, node.unusual()]
    return row if row[-1] else row[:-1]


def node_of(entry: Any) -> PlannedNode:
    """Parse a row of `node_row`, or a mapping with the fields of `PlannedNode`.

    Raises:
        TypeError, ValueError: The entry is malformed.
    """
    if isinstance(entry, list):
        return _node_of_row(entry)
    if not isinstance(entry, dict):
        raise ValueError(f"{str(entry)[:40]!r} is not a node")
    values = {"name": "", "key": "", "op_type": "", **entry}
    for key in entry:
        if key not in NODE_FIELDS:
            raise ValueError(f"node '{values['name']}': unknown key '{key}'")
    if "output" not in entry or "backend" not in entry:
        raise ValueError(f"node '{values['name']}': no output or no backend")
    values["precision"], values["ports"] = _formats(values["name"], entry.get("precision"), entry.get("ports"))
    return _checked(PlannedNode(**{**values, "origin": tuple(_listed(entry.get("origin")))}))


def _node_of_row(row: list[Any]) -> PlannedNode:
    if not 4 <= len(row) <= 7:
        raise ValueError(f"node '{row[0] if row else ''}': {len(row)} values instead of 4 to 7")
    defaults: list[Any] = [None, "", {}]
    name, output, operator, placement, region, key, unusual = [*row, *defaults[len(row) - 4 :]]
    if not isinstance(operator, str) or not isinstance(placement, str) or not isinstance(unusual, dict):
        raise ValueError(f"node '{name}': operator and placement must be strings, the last field a mapping")
    if unknown := next((key for key in unusual if key not in _UNUSUAL), None):
        raise ValueError(f"node '{name}': unknown key '{unknown}'")
    domain, _, op_type = operator.rpartition("::")
    backend, _, precision = placement.partition("/")
    origin = tuple(_listed(unusual.get("origin")))
    kind, ports = unusual.get("kind", "data"), unusual.get("ports")
    format_, formats = _formats(name, precision, ports)
    return _checked(
        PlannedNode(name, output, key or "", op_type, backend, format_, domain, origin, region, kind, formats)
    )


def _formats(name: Any, precision: Any, ports: Any) -> tuple[Format | None, dict[str, Format]]:
    """Parse the formats of an entry."""
    if ports is not None and not isinstance(ports, dict):
        raise ValueError(f"node '{name}': ports must map port to format")
    parts = (precision or "", *(ports or {}).values())
    wrong = next((part for part in parts if not isinstance(part, str)), None)
    if wrong is not None:
        raise ValueError(f"node '{name}': {wrong!r} is not the text of a format")
    try:
        found = {port: Format.of(text) for port, text in ports.items()} if ports else {}
        return (Format.of(precision) if precision else None), found
    except DovetailError as error:
        raise ValueError(f"node '{name}': {error.message}") from None


def _listed(origin: Any) -> list[Any]:
    if not isinstance(origin, (list, type(None))):
        raise ValueError(f"origin {origin!r} is not a list of names")
    return origin or []


def _checked(node: PlannedNode) -> PlannedNode:
    texts = (node.name, node.output, node.key, node.op_type, node.backend, node.domain, node.kind)
    if set(map(type, texts)) != {str}:
        wrong = next(text for text in texts if type(text) is not str)
        raise ValueError(f"node '{node.name}': {wrong!r} is not a string")
    if node.region is not None and type(node.region) is not int:
        raise ValueError(f"node '{node.name}': region {node.region!r} is not an integer")
    if not all(isinstance(text, str) for text in node.origin):
        raise ValueError(f"node '{node.name}': origin must be a list of names")
    if not node.backend:
        raise ValueError(f"node '{node.name}': no output or no backend")
    return node


def join_row(join: Join) -> list[Any]:
    """Return [value, from, to, kind, first reader, bytes]."""
    return [join.value, str(join.held), str(join.wanted), join.kind, join.at, join.bytes]


def join_of(entry: Any) -> Join:
    """Parse a row of `join_row`, or a mapping.

    Raises:
        TypeError, KeyError, ValueError: The entry is malformed.
    """
    if isinstance(entry, list) and not len(_JOIN) - 1 <= len(entry) <= len(_JOIN):
        raise ValueError(f"{len(entry)} values instead of {len(_JOIN) - 1} or {len(_JOIN)}")
    values = dict(zip(_JOIN, entry)) if isinstance(entry, list) else dict(entry)
    if not all(isinstance(values[key], str) for key in ("from", "to")):
        raise ValueError(f"{str(entry)[:40]!r} is not a join")
    try:
        join = Join.from_dict(values)
    except DovetailError as error:
        raise ValueError(error.message) from None
    *texts, size = join_row(join)
    if not all(isinstance(text, str) for text in texts) or not isinstance(size, (int, type(None))):
        raise ValueError(f"{str(entry)[:40]!r} is not a join")
    return join


def source_of(entry: Any) -> SourceNode:
    """Parse the row of a source node.

    Raises:
        ValueError: The entry is malformed.
    """
    if not (isinstance(entry, list) and len(entry) == 3 and all(isinstance(text, str) for text in entry)):
        raise ValueError(f"{str(entry)[:40]!r} is not a node of the source model")
    return SourceNode(*entry)
