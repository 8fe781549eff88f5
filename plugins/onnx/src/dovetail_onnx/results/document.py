"""Text format of plans: YAML with one entry per line, each entry in JSON.

JSON is a subset of YAML's flow style, so any YAML tool reads such a file, while this reader needs one `json.loads` per
line: 100,000 lines take half a second, and errors have line numbers. Hand-written entries in other YAML are parsed
entry by entry; a file of another layout is parsed as a whole, up to a limit of size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from dovetail.errors import DovetailError
from dovetail.ir import Format
from dovetail.planning import Join, PlannedNode, SourceNode
from dovetail.text import json_escaped

from dovetail_onnx.files.parsing import Malformed, parse_json, yaml_events

_DEEPEST = 30
_BY_HAND = 20_000  # entries; the YAML parser takes 0.1 ms for each
_NOT_JSON = object()
_YAML_UP_TO = 4 << 20  # characters; the YAML parser takes two seconds for a million
_KEY = re.compile(r"([A-Za-z_][\w-]*):(?:[ ]+(.*))?")


class DocumentEntries(list):
    """The entries of a list in a document.

    Attributes:
        lines: The line number of each entry, for messages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []


def json_text(value: Any) -> str:
    """Encode `value` as one line of JSON that YAML reads as the same value."""
    return json_escaped(_encode(value))


def document_lines(data: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of `data`, one per entry of a list; `notes` are comments by key."""
    for key, value in data.items():
        if key in notes and value:
            yield f"# {notes[key]}\n"
        if isinstance(value, list) and value:
            yield f"{key}:\n"
            for item in value:
                yield f"- {json_text(item)}\n"
        else:
            yield f"{key}: {json_text(value)}\n"


def parse_document(text: str, name: str) -> Any:
    """Parse the text of `document_lines`, or a hand-edited variant of it.

    Args:
        text: The document.
        name: Its name in messages.

    Raises:
        DovetailError: It is not YAML, nested too deep, or too large to be parsed as plain YAML.
    """
    data: dict[str, Any] = {}
    entries: DocumentEntries | None = None
    by_hand = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line[0] == "#" or line.isspace() or line == "---" and not data:
            continue
        entry = line.lstrip(" ")
        try:
            if entry.startswith("- ") and entries is not None:
                value = _json(entry[2:])
                if value is _NOT_JSON:
                    by_hand += 1
                    if by_hand > _BY_HAND:
                        what = f"more than {_BY_HAND} entries that are not JSON"
                        raise DovetailError(f"{name}:{number}: {what}", _SHALLOW)
                    value = _yaml(entry[2:], name, number)
                entries.append(value)
                entries.lines.append(number)
            elif found := _KEY.fullmatch(line.rstrip()):
                key, rest = found[1], (found[2] or "").strip()
                if key in data:
                    raise DovetailError(f"{name}:{number}: '{key}' is a duplicate key", "remove one of them")
                entries = None if rest and rest[0] != "#" else DocumentEntries()
                data[key] = _value(rest, name, number) if entries is None else entries
            else:
                return _whole(text, name, number)
        except _Unreadable:
            if len(text) > _YAML_UP_TO:
                raise
            return _whole(text, name, number)
    return data


class _Unreadable(DovetailError):
    """An entry that may continue on the next line."""


def _value(text: str, name: str, number: int) -> Any:
    value = _json(text)
    return _yaml(text, name, number) if value is _NOT_JSON else value


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except Malformed:
        return _NOT_JSON


def _whole(text: str, name: str, number: int) -> Any:
    """Parse a document of another layout."""
    if len(text) > _YAML_UP_TO:
        raise DovetailError(
            f"{name}:{number}: not in the layout of plans, one entry per line",
            f"a file of {len(text) >> 20} MiB can only be read in that layout; save the plan again",
        )
    return _yaml(text, name, 1)


def _yaml(text: str, name: str, first: int) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(text) > _YAML_UP_TO:
        raise DovetailError(f"{name}:{first}: an entry of {len(text) >> 20} MiB that is not JSON", _SHALLOW)
    try:
        for event in yaml_events(text, _DEEPEST, numbers=True):
            if getattr(event, "anchor", None) is not None:
                where = f"{name}:{first + event.start_mark.line}"
                raise DovetailError(f"{where}: anchors and aliases are not supported", "write the value out")
        return yaml.load(text, loader)
    except Malformed as error:
        number = first + max(error.line - 1, 0)
        raise _Unreadable(f"{name}:{number}: {error.problem}", _SHALLOW) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        number = first + (mark.line if mark else 0)
        raise _Unreadable(f"{name}:{number}: {getattr(error, 'problem', None) or error}") from None
    except (ArithmeticError, ValueError, RecursionError) as error:  # such as an invalid date
        raise DovetailError(f"{name}:{first}: {error}") from None


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ": ")).encode
_SHALLOW = "`dovetail plan MODEL -o plan.yaml` shows the form of a plan"


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
