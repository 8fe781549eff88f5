"""The grammar of pipeline text.

    pipeline ::= [ element { "," element } ]
    element  ::= "fixpoint" [ options ] "(" pipeline ")"  |  pass [ options ]
    options  ::= "{" [ option { "," option } ] "}"
    option   ::= key [ "=" value ]                        a key alone means true
    value    ::= word | string | "[" [ value { "," value } ] "]"
    word     ::= any characters except blanks and  { } ( ) [ ] , = "
    string   ::= '"' JSON string '"'

A word is parsed by the type of its option; a string is always text. Blanks between tokens are ignored. `fixpoint`
repeats its passes until none changes the model, at most `limit` times.

Example: `normalise{opset=22},place{backends=bpu-int8},fixpoint(fold-constants,dead-code),join`
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import UsageError
from dovetail.passes.base import Pass, load_pass
from dovetail.passes.options import WORD, Value, Word, build
from dovetail.passes.steps import Fixpoint
from dovetail.suggestions import did_you_mean

if TYPE_CHECKING:
    from dovetail.plugin.registry import Registry

__all__ = ["parse_steps"]

_TOKEN = re.compile(rf'(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>{WORD.pattern})|(?P<mark>[{{}}()\[\],=])', re.DOTALL)


class _Token(NamedTuple):
    kind: str  # "word", "string", "mark" or "end"
    text: str
    column: int


def parse_steps(text: str, registry: Registry) -> list[Pass | Fixpoint]:
    """Parse pipeline text into steps.

    Raises:
        UsageError: The text is malformed, or names an unknown pass or option.
        DovetailError: A known pass cannot be loaded.
    """
    parser = _Parser(text, registry)
    steps = parser.steps(closing="end")
    parser.take("end")
    return steps


class _Parser:
    def __init__(self, text: str, registry: Registry):
        self._registry = registry
        self._tokens = list(_tokens(text))
        self._next = 0

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

    def steps(self, closing: str) -> list[Pass | Fixpoint]:
        found = []
        while not (self.at("end") if closing == "end" else self.at("mark", closing)):
            if found:
                self.take("mark", closing if self.at("end") else ",")
            found.append(self.step())
        return found

    def step(self) -> Pass | Fixpoint:
        name = self.take("word").text
        options = self.options() if self.at("mark", "{") else {}
        if name == "fixpoint":
            return self.fixpoint(options)
        if name not in self._registry.pass_:
            raise UsageError(
                f"unknown pass {name!r}{did_you_mean(name, self._registry.pass_)}",
                "`dovetail passes` lists the installed ones",
            )
        return build(load_pass(self._registry, name), options)

    def fixpoint(self, options: dict[str, Value]) -> Fixpoint:
        self.take("mark", "(")
        steps = tuple(self.steps(closing=")"))
        self.take("mark", ")")
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


def _tokens(text: str):
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
