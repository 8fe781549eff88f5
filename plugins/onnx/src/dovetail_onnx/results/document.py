"""The text form of plans: YAML with one entry per line, each entry in JSON.

JSON is a subset of YAML's flow style, so any YAML tool reads such a file, while this reader needs one `json.loads` per
line: 100,000 lines take half a second, and errors have line numbers. Hand-written entries in other YAML are parsed
entry by entry; a file of another layout is parsed as a whole, up to a limit of size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.errors import DovetailError

from dovetail_onnx.files.parsing import Malformed, parse_json, yaml_events

_DEEPEST = 30
_BY_HAND = 20_000  # entries; the YAML parser takes 0.1 ms for each
_NOT_JSON = object()
_YAML_UP_TO = 4 << 20  # characters; the YAML parser takes two seconds for a million
_KEY = re.compile(r"([A-Za-z_][\w-]*):(?:[ ]+(.*))?")
# Characters that JSON allows unescaped, but YAML does not, or takes for a line break.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


class Entries(list):
    """The entries of a list in a document.

    Attributes:
        lines: The line number of each entry, for messages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []


def json_text(value: Any) -> str:
    """Encode `value` as one line of JSON that YAML reads as the same value."""
    text = _encode(value)
    if text.isascii() and "\x7f" not in text:
        return text
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
    entries: Entries | None = None
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
                entries = None if rest and rest[0] != "#" else Entries()
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
