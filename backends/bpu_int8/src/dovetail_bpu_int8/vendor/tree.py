"""The vendor's files as trees that remember their lines."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from dovetail.plugin import DovetailError
from dovetail_schemas.yaml_source import Entries, Items, Node, Scalar

__all__ = ["Entries", "FileError", "Items", "Node", "Scalar", "as_plain", "read_json", "read_yaml", "type_name"]

_DEEPEST = 20
_MOST_NODES = 4_000_000  # aliases repeat what they stand for
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class FileError(DovetailError):
    """A file of the vendor's tools is at fault.

    Args:
        node: The place.
        problem: What is wrong there.
        hint: The way out.
    """

    def __init__(self, node: Node, problem: str, hint: str = ""):
        super().__init__(f"{node.where}: {problem}", hint)


def read_yaml(path: Path) -> Entries:
    """Read a YAML file as the vendor's tools do: YAML 1.1, whose aliases are followed and whose keys stay text.

    Raises:
        DovetailError: It cannot be read, is not YAML, has a key twice, or is no mapping; names the line.
    """
    return _parse(_text_of(path), path.name)


def read_json(path: Path) -> Entries:
    """Read a JSON file.

    Raises:
        DovetailError: It cannot be read, is not JSON, has a key twice, or is no mapping; names the line.
    """
    text = _text_of(path)
    try:
        json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise DovetailError(f"{path.name}:{error.lineno}: not JSON: {error.msg}", "write it as JSON") from None
    except (ValueError, RecursionError) as error:
        raise DovetailError(f"{path.name}: not JSON: {error or 'nested too deeply'}", "write it as JSON") from None
    # JSON is YAML but for its tabs, which no string of JSON contains as they are.
    return _parse(text.replace("\t", " "), path.name)


def as_plain(node: Node) -> Any:
    """A tree as plain data, with the words of YAML 1.1 for true and false; numbers beyond float64 stay text."""
    if isinstance(node, Scalar):
        value = node.raw if node.quoted else _WORDS.get(node.raw.lower(), node.value)
        return node.raw if isinstance(value, float) and not math.isfinite(value) else value
    if isinstance(node, Items):
        return [as_plain(item) for item in node.items]
    return {key.raw: as_plain(value) for key, value in node}


def type_name(node: Node) -> str:
    """What stands at a place, for messages: `a list`, `nothing`, `the number 3`."""
    if not isinstance(node, Scalar):
        return "a list" if isinstance(node, Items) else "a mapping"
    value = as_plain(node)
    if value is None:
        return "nothing"
    shown = node.raw if len(node.raw) <= 40 else f"{node.raw[:40]}..."
    return {bool: shown, int: f"the number {shown}", float: f"the number {shown}"}.get(type(value), f"'{shown}'")


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _text_of(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DovetailError(f"{path}: cannot be read: {error.strerror or error}", "name a file that is there") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DovetailError(f"{path.name}:{line}: not a text file", "save it as text in UTF-8") from None


def _parse(text: str, file: str) -> Entries:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise DovetailError(f"{file}:{line}: not YAML: {error.problem or error.context}", "mend this line") from None
    except yaml.YAMLError:
        raise DovetailError(f"{file}: not a text file", "save it as text in UTF-8") from None
    except RecursionError:
        raise DovetailError(f"{file}: nested too deeply", "the vendor's files are a few levels deep") from None
    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value):
        raise DovetailError(f"{file}: the file is empty", "name the file that the vendor's tool reads")
    tree = _Composer(file).node(root, 0)
    if not isinstance(tree, Entries):
        raise FileError(tree, f"{type_name(tree)} stands where 'key: value' pairs are expected")
    return tree


class _Composer:
    """Makes nodes with lines of what PyYAML has composed."""

    def __init__(self, file: str):
        self._file, self._made = file, 0

    def node(self, found: Any, depth: int) -> Node:
        import yaml

        line = found.start_mark.line + 1
        self._made += 1
        if depth > _DEEPEST or self._made > _MOST_NODES:
            raise DovetailError(f"{self._file}:{line}: nested too deeply", "the vendor's files are a few levels deep")
        if isinstance(found, yaml.ScalarNode):
            return Scalar(self._file, line, found.value, bool(found.style))
        if isinstance(found, yaml.SequenceNode):
            return Items(self._file, line, tuple(self.node(item, depth + 1) for item in found.value))
        first: dict[str, int] = {}
        pairs = []
        for key, value in found.value:
            named = self.node(key, depth + 1)
            if not isinstance(named, Scalar):
                raise FileError(named, "a key is one word or text")
            if named.raw in first:
                before = f"first on line {first[named.raw]}"
                raise FileError(named, f"'{named.raw}' is given twice ({before})", "remove one of them")
            first[named.raw] = named.line
            pairs.append((named, self.node(value, depth + 1)))
        return Entries(self._file, line, tuple(pairs), bool(found.flow_style))
