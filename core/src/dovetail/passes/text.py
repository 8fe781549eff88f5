"""The grammar of pipeline text.

    pipeline ::= [ element { "," element } ]
    element  ::= "fixpoint" [ options ] "(" pipeline ")"  |  "backend:" name "(" pipeline ")"  |  pass [ options ]
                 |  name of a registered pipeline
    options  ::= "{" [ option { "," option } ] "}"
    option   ::= key [ "=" value ]                        a key alone means true
    value    ::= word | string | "[" [ value { "," value } ] "]"
    word     ::= any characters except blanks and  { } ( ) [ ] , = "
    string   ::= '"' JSON string '"'

A word is parsed according to the type of its option; a string is always text. Blanks between tokens are ignored.
`fixpoint` repeats its passes until none changes the model, at most `limit` times. `backend:acme(...)` runs its passes
on every region of the backend `acme` separately. The name of a registered pipeline expands to its steps, and is printed
so.

Example: `normalize{opset=22},place,fixpoint(fold-constants,dead-code),backend:bpu-int8(fold-constants),join`
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError, UsageError
from dovetail.plugin.pass_ import load_pass
from dovetail.plugin.pass_options import WORD, Value, Word, build
from dovetail.plugin.steps import Fixpoint, Nested, Step
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.plugin.loading.registry import Registry


_ANCHOR = "backend:"
_DEEPEST = 50  # nesting depth of brackets
_TOKEN = re.compile(rf'(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>{WORD.pattern})|(?P<mark>[{{}}()\[\],=])', re.DOTALL)


class _Token(NamedTuple):
    kind: str  # "word", "string", "mark" or "end"
    text: str
    column: int


def parse_steps(text: str, registry: Registry) -> list[Step]:
    """Parse pipeline text into steps; registered pipelines are expanded.

    Raises:
        UsageError: The text is malformed, or names an unknown pass or option.
        DovetailError: A known pass cannot be loaded, or a registered pipeline is malformed or contains itself.
    """
    return _Parser(text, registry).whole()


class _Parser:
    """Parser of one pipeline text.

    Args:
        text: The text.
        registry: The registered passes and pipelines.
        inside: Names of the registered pipelines being expanded, outermost first.
    """

    def __init__(self, text: str, registry: Registry, inside: tuple[str, ...] = ()):
        self._registry = registry
        self._tokens = list(_tokens(text))
        self._next = 0
        self._inside = inside
        self._depth = 0

    def whole(self) -> list[Step]:
        steps = self.steps(closing="end")
        self.take("end")
        return steps

    @property
    def token(self) -> _Token:
        return self._tokens[self._next]

    def at(self, kind: str, text: str = "") -> bool:
        return self.token.kind == kind and (not text or self.token.text == text)

    def take(self, kind: str, text: str = "") -> _Token:
        token = self.token
        if not self.at(kind, text):
            wanted = repr(text) if text else {"end": "the end or ','", "word": "a name"}.get(kind, kind)
            found = repr(token.text) if token.text else "the end"
            raise UsageError(f"pipeline text, column {token.column}: {wanted} expected, {found} found")
        if kind != "end":
            self._next += 1
        return token

    def steps(self, closing: str) -> list[Step]:
        found: list[Step] = []
        first = True
        while not (self.at("end") if closing == "end" else self.at("mark", closing)):
            if not first:
                self.take("mark", closing if self.at("end") else ",")
            found += self.element()
            first = False
        return found

    def element(self) -> list[Step]:
        """Parse one step, or expand a registered pipeline."""
        name = self.take("word").text
        options = self.options() if self.at("mark", "{") else {}
        if name == "fixpoint":
            return [self.fixpoint(options)]
        if name.startswith(_ANCHOR):
            return [self.nested(name, options)]
        passes, pipelines = self._registry.pass_, self._registry.pipeline
        if name in pipelines:
            return self.named(name, options)
        if name not in passes:
            raise UsageError(
                f"unknown pass {name!r}{did_you_mean(name, [*passes, *pipelines])}",
                "`dovetail passes` lists the installed ones",
            )
        return [build(load_pass(self._registry, name), options)]

    def named(self, name: str, options: dict[str, Value]) -> list[Step]:
        """Expand the registered pipeline `name`."""
        title = self._registry.pipeline.title(name)
        if name in self._registry.pass_:
            owner = self._registry.pass_.entry(name).owner
            raise DovetailError(f"{title} has the name of a pass of {owner}", "leave one of them out with --no-plugin")
        if options:
            raise UsageError(f"{title} has no options", "its passes have: write them out instead")
        if name in self._inside:
            way = " -> ".join((*self._inside[self._inside.index(name) :], name))
            raise DovetailError(f"{title} contains itself: {way}", "take its name out of one of these texts")
        try:
            return _Parser(self._registry.pipeline[name], self._registry, (*self._inside, name)).whole()
        except UsageError as error:
            raise DovetailError(f"{title}: {error.message}", error.hint) from error

    def nested(self, name: str, options: dict[str, Value]) -> Nested:
        if options:
            raise UsageError(f"{name} has no options", f"write {name}(...)")
        backend = name.removeprefix(_ANCHOR)
        if not backend:
            raise UsageError("a nested pipeline needs the name of a backend", "write backend:NAME(...)")
        return Nested(backend, self.inner())

    def inner(self) -> tuple[Step, ...]:
        """Parse the steps in a pair of parentheses."""
        column = self.take("mark", "(").column
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UsageError(f"pipeline text, column {column}: brackets are nested deeper than {_DEEPEST} levels")
        steps = tuple(self.steps(closing=")"))
        self.take("mark", ")")
        self._depth -= 1
        return steps

    def fixpoint(self, options: dict[str, Value]) -> Fixpoint:
        steps = self.inner()
        limit = options.pop("limit", None)
        if options:
            raise UsageError(f"fixpoint has no option {next(iter(options))!r}", "its option: limit")
        if limit is None:
            return Fixpoint(steps)
        if not (isinstance(limit, Word) and limit.text.isdecimal() and int(limit.text) > 0):
            raise UsageError("option 'limit' of fixpoint must be a positive integer")
        return Fixpoint(steps, int(limit.text))

    def options(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        self.take("mark", "{")
        while not self.at("mark", "}"):
            if found:
                self.take("mark", ",")
            key = self.take("word")
            if key.text in found:
                raise UsageError(f"pipeline text, column {key.column}: option {key.text!r} is given twice")
            if self.at("mark", "="):
                self.take("mark", "=")
                found[key.text] = self.value()
            else:
                found[key.text] = Word("true")
        self.take("mark", "}")
        return found

    def value(self) -> Value:
        if self.at("string"):
            token = self.take("string")
            try:
                return Word(json.loads(token.text), quoted=True)
            except ValueError as error:
                raise UsageError(f"pipeline text, column {token.column}: not a string: {error}") from None
        if not self.at("mark", "["):
            return Word(self.take("word").text)
        items: list[Value] = []
        self.take("mark", "[")
        while not self.at("mark", "]"):
            if items:
                self.take("mark", ",")
            items.append(self.value())
        self.take("mark", "]")
        return items


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            yield _Token("end", "", position + 1)
            return
        match = _TOKEN.match(text, position)
        if not match:
            raise UsageError(f"pipeline text, column {position + 1}: a string is not closed")
        yield _Token(str(match.lastgroup), match.group(), position + 1)
        position = match.end()
