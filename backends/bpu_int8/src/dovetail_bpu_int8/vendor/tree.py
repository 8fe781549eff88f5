"""The vendor's files as trees with line numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from dovetail.plugin import DovetailError
from dovetail_onnx import Malformed, parse_json, read_input, yaml_events
from dovetail_schemas import Entries, Items, Node, Scalar

__all__ = ["Entries", "FileError", "Items", "Node", "Scalar", "as_plain", "read_json", "read_yaml", "type_name"]

_DEEPEST = 20
_MOST_REPEATED = 100_000  # most values that aliases may repeat
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class FileError(DovetailError):
    """Raised for an invalid file of the vendor's tools.

    Args:
        node: The position.
        problem: The problem there.
        hint: A hint to fix it.
    """

    def __init__(self, node: Node, problem: str, hint: str = ""):
        super().__init__(f"{node.where}: {problem}", hint)


def read_yaml(path: Path) -> Entries:
    """Read a YAML file as the vendor's tools do: YAML 1.1, whose aliases are followed and whose keys stay text.

    Raises:
        DovetailError: It cannot be read, is not YAML, has a key twice, or is not a mapping; names the line.
    """
    return _parse(_text_of(path), path.name)


def read_json(path: Path) -> Entries:
    """Read a JSON file.

    Raises:
        DovetailError: It cannot be read, is not JSON, has a key twice, or is not a mapping; names the line.
    """
    text = _text_of(path)
    try:
        parse_json(text, finite=True, deepest=_DEEPEST)
    except Malformed as error:
        where = f"{path.name}:{error.line}" if error.line else path.name
        raise DovetailError(f"{where}: not JSON: {error.problem}", "write it as JSON") from None
    # JSON is YAML except for tabs, which cannot occur unescaped in JSON strings.
    return _parse(text.replace("\t", " "), path.name)


def as_plain(node: Node) -> Any:
    """Convert a tree to plain data with YAML 1.1 booleans; numbers beyond float64 stay text."""
    if isinstance(node, Scalar):
        value = node.raw if node.quoted else _WORDS.get(node.raw.lower(), node.value)
        return node.raw if isinstance(value, float) and not math.isfinite(value) else value
    if isinstance(node, Items):
        return [as_plain(item) for item in node.items]
    return {key.raw: as_plain(value) for key, value in cast("Entries", node)}


def type_name(node: Node) -> str:
    """Describe a node for messages: `a list`, `nothing`, `the number 3`."""
    if not isinstance(node, Scalar):
        return "a list" if isinstance(node, Items) else "a mapping"
    value = as_plain(node)
    if value is None:
        return "nothing"
    shown = node.raw if len(node.raw) <= 40 else f"{node.raw[:40]}..."
    return {bool: shown, int: f"the number {shown}", float: f"the number {shown}"}.get(type(value), f"'{shown}'")


def _text_of(path: Path) -> str:
    data = read_input(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DovetailError(f"{path.name}:{line}: not a text file", "save it as text in UTF-8") from None


def _parse(text: str, file: str) -> Entries:
    composer = _Composer(file)
    try:
        for event in yaml_events(text, _DEEPEST):
            composer.take(event)
    except Malformed as error:
        raise DovetailError(error.at(file), "mend this line") from None
    tree = composer.root
    if tree is None or (isinstance(tree, Scalar) and not tree.raw):
        raise DovetailError(f"{file}: the file is empty", "name the file that the vendor's tool reads")
    if not isinstance(tree, Entries):
        raise FileError(tree, f"{type_name(tree)} stands where 'key: value' pairs are expected")
    return tree


class _Composer:
    """Builds a tree from YAML events with an explicit stack.

    An alias shares the node that it refers to, so nested aliases cost no memory here. A traversal visits the shared
    node once per alias, so the amount of repetition is bounded.

    Attributes:
        root: The document; None if there is none.
    """

    def __init__(self, file: str):
        self.root: Node | None = None
        self._file = file
        self._open: list[_Collection] = []
        self._anchors: dict[str, tuple[Node, int, int] | None] = {}  # None while its collection is open
        self._repeated = 0

    def take(self, event: Any) -> None:
        """Process the next event."""
        import yaml

        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise DovetailError(f"{self._file}:{line}: one document per file", "remove what follows '---'")
        if isinstance(event, yaml.AliasEvent):
            self._add(*self._alias(cast("str", event.anchor), line))
        elif isinstance(event, yaml.ScalarEvent):
            node: Node = Scalar(self._file, line, event.value, bool(event.style))
            if event.anchor:
                self._anchors[event.anchor] = (node, 1, 0)
            self._add(node, 1, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            if event.anchor:
                self._anchors[event.anchor] = None
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._open.append(_Collection(line, is_mapping, bool(event.flow_style), event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self._open.pop()
            node = self._mapping(done) if done.is_mapping else Items(self._file, done.line, tuple(done.children))
            if done.anchor:
                self._anchors[done.anchor] = (node, done.size, done.depth)
            self._add(node, done.size, done.depth)

    def _add(self, node: Node, size: int, depth: int) -> None:
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.children.append(node)
        parent.size += size
        parent.depth = max(parent.depth, depth + 1)
        if len(self._open) + depth > _DEEPEST:
            raise FileError(node, "nested too deeply", "the vendor's files are a few levels deep")

    def _alias(self, anchor: str, line: int) -> tuple[Node, int, int]:
        if anchor not in self._anchors:
            raise DovetailError(f"{self._file}:{line}: alias '{anchor}' names no anchor", f"write &{anchor} before it")
        known = self._anchors[anchor]
        if known is None:
            raise DovetailError(f"{self._file}:{line}: '{anchor}' contains itself", "write the value out")
        self._repeated += known[1]
        if self._repeated > _MOST_REPEATED:
            problem = f"aliases repeat more than {_MOST_REPEATED} values"
            raise DovetailError(f"{self._file}:{line}: {problem}", "write the values out")
        return known

    def _mapping(self, done: _Collection) -> Entries:
        first: dict[str, tuple[int, Node]] = {}
        pairs = tuple(zip(done.children[::2], done.children[1::2], strict=True))
        kept = []
        for key, value in pairs:
            if not isinstance(key, Scalar):
                raise FileError(key, "a key is one word or text")
            if key.raw not in first:
                first[key.raw] = key.line, value
                kept.append((key, value))
                continue
            line, before = first[key.raw]
            # The vendor's tools accept a repeated key with the same value.
            if as_plain(value) != as_plain(before):
                raise FileError(key, f"'{key.raw}' is given twice (first on line {line})", "remove one of them")
        return Entries(self._file, done.line, tuple(kept), done.flow)


@dataclass(slots=True)
class _Collection:
    """An unfinished list or mapping; `size` and `depth` measure its content with aliases expanded."""

    line: int
    is_mapping: bool
    flow: bool
    anchor: str | None
    children: list[Node] = field(default_factory=list)
    size: int = 1
    depth: int = 0
