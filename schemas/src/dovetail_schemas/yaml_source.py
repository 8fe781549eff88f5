"""YAML as a tree that records line numbers.

The tree is composed from parser events, so that every feature that files may not use (anchors, aliases, merge keys,
tags, duplicate keys, ambiguous words) is an error with its line. Keys stay text. Plain values follow the core schema of
YAML 1.2: `true`, `false`, `null`, integers and decimal numbers; all else is text.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from dovetail.files import seen
from dovetail_onnx.files.parsing import MOST_DIGITS, Malformed, too_long, yaml_events
from dovetail_onnx.files.reading import UnreadableInput, read_input

from dovetail_schemas.errors import FileName, SchemaError, near_miss, one_of

if TYPE_CHECKING:
    from dovetail.plugin import Source


_Word = TypeVar("_Word", bound=str)
_AMBIGUOUS = {word for base in ("yes", "no", "on", "off") for word in (base, base.title(), base.upper())}
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = {"", "~", "null", "Null", "NULL"}
_INTEGER = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Node(abc.ABC):
    """A node of the tree.

    Attributes:
        file: Name of the file.
        line: Line on which it starts, from 1.
    """

    file: str
    line: int

    @property
    def where(self) -> str:
        """File and line, as in `operator.yaml:4`."""
        return f"{self.file}:{self.line}"

    def error(self, problem: str) -> SchemaError:
        """Return an error at this place."""
        return SchemaError(problem, self.file, self.line)

    def text(self, what: str) -> str:
        """Return the text of a scalar; for any other node, raise an error that names `what`."""
        raise self.error(f"{what}: one word or text is expected")

    def entries(self, what: str) -> Entries:
        """Return this node if it is a mapping; raise otherwise."""
        raise self.error(f"{what}: 'key: value' pairs are expected")

    def words(self, what: str, *, empty: bool = False) -> list[Scalar]:
        """Return the scalars of a list; a single scalar is a list of one. An empty list is an error unless `empty`."""
        raise self.error(f"{what}: a word or a list of words is expected")

    def many(self) -> tuple[Node, ...]:
        """Return the items of a list; any other node is a list of one."""
        return (self,)

    @abc.abstractmethod
    def plain(self) -> object:
        """Return the node as Python data."""


@dataclass(frozen=True, slots=True)
class Scalar(Node):
    """A scalar value.

    Attributes:
        raw: The text as written, without quotes.
        quoted: Whether it was quoted, and is therefore text.
    """

    raw: str
    quoted: bool = False

    @property
    def is_null(self) -> bool:
        """Whether the value is empty."""
        return not self.quoted and self.raw in _NULLS

    @property
    def value(self) -> bool | int | float | str | None:
        """The value according to the core schema of YAML 1.2."""
        if self.quoted:
            return self.raw
        if self.raw in _NULLS:
            return None
        if self.raw in _WORDS:
            return _WORDS[self.raw]
        if _INTEGER.fullmatch(self.raw):
            if len(self.raw) > MOST_DIGITS:  # Python refuses to convert much longer ones
                raise self.error(too_long(self.raw))
            return int(self.raw, 0 if self.raw.startswith(("0x", "0o")) else 10)
        return float(self.raw) if _DECIMAL.fullmatch(self.raw) else self.raw

    @property
    def drops(self) -> bool:
        """Whether it is the word `null`, which drops a key of the layers below. An empty value does not: see `text`."""
        return not self.quoted and self.raw == "null"

    def text(self, what: str) -> str:
        """Return the text as written; an empty value is an error."""
        if self.is_null or not self.raw.strip():
            raise self.error(f"{what}: nothing is given")
        return self.raw

    def words(self, what: str, *, empty: bool = False) -> list[Scalar]:
        """Return a list with this scalar."""
        self.text(what)
        return [self]

    def plain(self) -> object:
        """Return the value."""
        return self.value


@dataclass(frozen=True, slots=True)
class Items(Node):
    """A list."""

    items: tuple[Node, ...]

    def many(self) -> tuple[Node, ...]:
        """Return the items."""
        return self.items

    def words(self, what: str, *, empty: bool = False) -> list[Scalar]:
        """Return the items, all of which must be scalars."""
        if not self.items and not empty:
            raise self.error(f"{what}: the list is empty; leave the key out if nothing is meant")
        found: list[Scalar] = []
        for item in self.items:
            if not isinstance(item, Scalar):
                raise item.error(f"{what}: one word or text is expected")
            item.text(what)
            found.append(item)
        return found

    def plain(self) -> object:
        """Return a list."""
        return [item.plain() for item in self.items]


@dataclass(frozen=True, slots=True)
class Entries(Node):
    """A mapping in file order."""

    pairs: tuple[tuple[Scalar, Node], ...]
    flow: bool = False

    def entries(self, what: str) -> Entries:
        """Return this mapping."""
        return self

    def __iter__(self) -> Iterator[tuple[Scalar, Node]]:
        return iter(self.pairs)

    def get(self, key: str) -> Node | None:
        """Return the value of `key`, or None."""
        return next((value for name, value in self.pairs if name.raw == key), None)

    def require(self, key: str) -> Node:
        """Return the value of `key`; a missing key is an error."""
        found = self.get(key)
        if found is None:
            raise self.error(f"key '{key}' is missing")
        return found

    def only(self, what: str, allowed: tuple[str, ...]) -> Entries:
        """Return this mapping; a key that is not in `allowed` is an error."""
        for key, _ in self.pairs:
            if key.raw not in allowed:
                raise key.error(f"unknown key '{key.raw}' in {what}{near_miss(key.raw, allowed)}")
        return self

    @overload
    def choice(self, key: str, allowed: tuple[_Word, ...], default: _Word) -> _Word: ...
    @overload
    def choice(self, key: str, allowed: tuple[_Word, ...]) -> _Word | Literal[""]: ...
    def choice(self, key: str, allowed: tuple[str, ...], default: str = "") -> str:
        """Return the word under `key`, one of `allowed`; `default` if it is not given."""
        node = self.get(key)
        if node is None:
            return default
        word = node.text(key)
        if word not in allowed:
            raise node.error(f'{key}: "{word}" is not one of {one_of(allowed)}')
        return word

    def plain(self) -> dict[str, object]:
        """Return a dict."""
        return {key.raw: value.plain() for key, value in self.pairs}


def drops(node: Node) -> bool:
    """Check whether a value is the word `null`, which drops its key from the layers below."""
    return isinstance(node, Scalar) and node.drops


def load_tree(source: Source) -> Entries:
    """Load a file whose top level is a mapping.

    Raises:
        SchemaError: It cannot be read, is not YAML, or uses a feature that these files may not use.
    """
    return load_document(source).entries("file")


def load_document(source: Source) -> Node:
    """Load a file whose top level is a mapping or a list; see `load_tree`."""
    file = FileName(source.name, str(source))
    data = source_bytes(source, file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SchemaError("not a text file", file, data[: error.start].count(b"\n") + 1) from error
    return parse_document(text, file)


def source_bytes(source: Source, file: str = "") -> bytes:
    """Read a file that a user names, or one in a package; errors call it `file`, if given.

    Raises:
        SchemaError: It cannot be read, is not a regular file, or is too large.
    """
    try:
        return read_input(source) if isinstance(source, Path) else seen(source).read_bytes()
    except UnreadableInput as error:
        raise SchemaError(error.problem, file or source.name) from error
    except OSError as error:
        raise SchemaError(f"cannot be read: {error.strerror or error}", file or source.name) from error


def parse_tree(text: str, file: str) -> Entries:
    """Parse a text whose top level is a mapping; see `load_tree`."""
    return parse_document(text, file).entries("file")


def parse_document(text: str, file: str) -> Node:
    """Parse a text; see `load_document`."""
    import yaml

    try:
        events = list(yaml_events(text, _DEEPEST))
    except Malformed as error:
        raise SchemaError(error.problem, file, error.line) from error
    documents = sum(isinstance(event, yaml.DocumentStartEvent) for event in events)
    if documents > 1:
        second = [event for event in events if isinstance(event, yaml.DocumentStartEvent)][1]
        assert second.start_mark is not None
        raise SchemaError("one document per file", file, second.start_mark.line + 1)
    tree = _compose(events, file)
    if tree is None or (isinstance(tree, Scalar) and tree.is_null):
        raise SchemaError("the file is empty", file, 1)
    return tree


def _compose(events: list, file: str) -> Node | None:
    """Compose the tree in one pass with an explicit stack; a mapping's children alternate between keys and values."""
    import yaml

    stack: list[tuple[yaml.CollectionStartEvent | None, list[Node]]] = [(None, [])]
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.NodeEvent):
            _refuse_references(event, file, line)
        if isinstance(event, yaml.ScalarEvent):
            node = Scalar(file, line, event.value, bool(event.style))
            opener, children = stack[-1]
            is_key = isinstance(opener, yaml.MappingStartEvent) and len(children) % 2 == 0
            if node.raw in _AMBIGUOUS and not node.quoted and not is_key:
                problem = "is true or false to some tools and a word to others; write true, false or quote it"
                raise node.error(f"'{node.raw}' {problem}")
            children.append(node)
        elif isinstance(event, yaml.CollectionStartEvent):
            stack.append((event, []))
        elif isinstance(event, yaml.CollectionEndEvent):
            opener, children = stack.pop()
            assert opener is not None and opener.start_mark is not None
            line = opener.start_mark.line + 1
            if isinstance(opener, yaml.MappingStartEvent):
                stack[-1][1].append(_mapping(children, file, line, bool(opener.flow_style)))
            else:
                stack[-1][1].append(Items(file, line, tuple(children)))
    return stack[0][1][0] if stack[0][1] else None


def _refuse_references(event, file: str, line: int) -> None:
    import yaml

    if isinstance(event, yaml.AliasEvent) or event.anchor:
        raise SchemaError("no anchors or aliases; give it a name under types: or groups:", file, line)
    if event.tag:
        raise SchemaError("no tags ('!'); plain words, numbers and quoted texts only", file, line)


def _mapping(children: list[Node], file: str, line: int, flow: bool) -> Entries:
    first: dict[str, int] = {}
    pairs: list[tuple[Scalar, Node]] = []
    for key, value in zip(children[::2], children[1::2]):
        if not isinstance(key, Scalar):
            raise key.error("a key is one word or text")
        if key.raw == "<<" and not key.quoted:
            raise key.error("no merge keys ('<<'); give it a name under types: or groups:")
        if key.raw in first:
            raise key.error(f"'{key.raw}' is given twice (first on line {first[key.raw]})")
        first[key.raw] = key.line
        pairs.append((key, value))
    return Entries(file, line, tuple(pairs), flow)
