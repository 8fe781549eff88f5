"""Terms: the left side of a limit, and the bounds of a range.

Integers, names, `+ - * / // % **`, `min max prod len align(x, n)` and one dot (`X.rank`). A term is parsed, checked
against this list and compiled to closures; text from a file is never executed.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

from dovetail_schemas.errors import near_miss
from dovetail_schemas.yaml_source import Node

_LONGEST = 300
_MOST_BITS = 4096


class TermError(Exception):
    """A term cannot be parsed, or has no value for these numbers (a division by zero, for example)."""


class Absent:
    """Singleton value of a name that the node does not have: an omitted optional input or attribute."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not known yet.

    Attributes:
        name: The name in the term.
        why: `run-time` (an extent, a fact), `constant` (the content of a non-constant port), `region` (evaluated again
            once regions exist).
    """

    name: str
    why: Literal["run-time", "constant", "region"] = "run-time"


class Env(Protocol):
    """The environment of names."""

    def __getitem__(self, name: str, /) -> object:
        """Return the value of a name, `ABSENT` or `Unknown`."""


_Run = Callable[[Env], object]


@dataclass(frozen=True, slots=True)
class Term:
    """A compiled term; call it with an environment.

    Attributes:
        text: The source text.
        names: The names in it, sorted; `X.rank` is one name.
    """

    text: str
    names: tuple[str, ...]
    _run: _Run = field(repr=False, compare=False)

    def __call__(self, env: Env) -> Any:
        """Evaluate to a number, a string, or a tuple for a list; `ABSENT` or `Unknown` if one of its names is.

        Raises:
            TermError: It has no value for these numbers.
        """
        unknown = None
        for name in self.names:
            value = env[name]
            if value is ABSENT:
                return ABSENT
            if isinstance(value, Unknown) and (unknown is None or value.why == "region"):
                unknown = value
        if unknown is not None:
            return unknown
        try:
            return self._run(env)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise TermError(f"{self.text} cannot be computed: {error}") from error

    @property
    def is_name(self) -> bool:
        """Whether the term is a single name."""
        return self.names == (self.text,)


def split_keys(key: str) -> list[str]:
    """Split a key such as `KH, KW` into terms, at commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(key):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(key[start:i])
            start = i + 1
    return [part.strip() for part in (*parts, key[start:])]


@lru_cache(maxsize=4096)
def parse_term(text: str) -> Term:
    """Parse and check a term.

    Raises:
        TermError: It is not a term; the message quotes it.
    """
    if len(text) > _LONGEST:
        raise TermError(f'longer than {_LONGEST} characters: "{text[:40]}..."')
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise TermError(f'not a term: "{text}"') from error
    names: set[str] = set()
    run = _compile(tree, text, names)
    return Term(text.strip(), tuple(sorted(names)), run)


def _power(base, exponent):
    if exponent < 0:
        raise ValueError("a negative power")
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > _MOST_BITS:
        raise OverflowError("too large")
    power = base**exponent
    if isinstance(power, complex):
        raise ValueError("a root of a negative number")
    return power


def _align(x, n):
    return -(-x // n) * n


def _numbers(args: tuple) -> tuple:
    """Return the arguments of min, max, prod: one list, or numbers."""
    return args[0] if len(args) == 1 and isinstance(args[0], tuple) else args


_BINARY: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_UNARY: dict[type, Callable] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_CALLS: dict[str, tuple[Callable, int, int]] = {
    "min": (lambda *args: min(_numbers(args)), 1, 99),
    "max": (lambda *args: max(_numbers(args)), 1, 99),
    "prod": (lambda *args: math.prod(_numbers(args)), 1, 99),
    "len": (len, 1, 1),
    "align": (_align, 2, 2),
}


def _number(value: object) -> object:
    """Restrict arithmetic to numbers, since Python also adds tuples and repeats strings; unwrap a list of one."""
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, (int, float)):
        return value
    raise TypeError("a list" if isinstance(value, tuple) else "not a number")


def _compile(node: ast.expr, text: str, names: set[str]) -> _Run:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return lambda env: value
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id=name)):
            full = f"{name}.{node.attr}" if isinstance(node, ast.Attribute) else name
            names.add(full)
            return lambda env: env[full]
        case ast.Attribute():
            raise TermError(f'one dot at most: "{text}"')
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            apply, one, two = _BINARY[type(op)], _compile(left, text, names), _compile(right, text, names)
            return lambda env: apply(_number(one(env)), _number(two(env)))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            apply, one = _UNARY[type(op)], _compile(operand, text, names)
            return lambda env: apply(_number(one(env)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return _compile_call(name, args, text, names)
    raise TermError(f'only integers, names, + - * / // % ** and {", ".join(_CALLS)} are allowed: "{text}"')


def _compile_call(name: str, args: list[ast.expr], text: str, names: set[str]) -> _Run:
    if name not in _CALLS:
        raise TermError(f"unknown function '{name}'{near_miss(name, _CALLS)}: \"{text}\"")
    apply, least, most = _CALLS[name]
    if not least <= len(args) <= most:
        raise TermError(f'{name} takes {least if least == most else "one or more"} arguments: "{text}"')
    runs = [_compile(arg, text, names) for arg in args]
    return lambda env: apply(*[run(env) for run in runs])


Extent = int | str | None
"""A number, the name of a symbolic extent, or None for an unnamed one."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LITERAL = re.compile(r"[0-9]{1,18}")


class Mismatch(Exception):
    """A shape does not match its pattern; the message says where."""


@dataclass(frozen=True, slots=True)
class ShapePattern:
    """The shape pattern of one port or list attribute.

    Attributes:
        target: The port or attribute.
        tokens: Its extents from left to right, without the leading `...`.
        open: Whether it begins with `...`.
        source: File and line.
    """

    target: str
    tokens: tuple[str, ...]
    open: bool
    source: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names it binds."""
        return tuple(token for token in self.tokens if token != "_" and not token.isdigit())

    def __str__(self) -> str:
        return f"{self.target}: {' '.join(('...',) * self.open + self.tokens)}"


class NameBinding:
    """The bindings of names while the patterns of one row are matched against a node.

    Attributes:
        doubts: Extents unknown until run time, each with the pattern that needs it, in the order found.
    """

    def __init__(self) -> None:
        self.extents: dict[str, Extent] = {}
        self.doubts: list[tuple[str, ShapePattern]] = []

    def lay(self, pattern: ShapePattern, extents: Sequence[Extent] | None, pad: bool = False) -> None:
        """Match `pattern`, and bind its names.

        Args:
            pattern: The pattern.
            extents: The extents of the port; None if the rank is unknown.
            pad: Treat missing leading extents as 1 (for operators that broadcast).

        Raises:
            Mismatch: The extents do not match.
        """
        if extents is None:
            self.doubts.append((f"the rank of {pattern.target}", pattern))
            for name in pattern.names:
                self.extents.setdefault(name, None)
            return
        wanted, given = len(pattern.tokens), len(extents)
        if pad and not pattern.open and 0 < given < wanted:
            extents = [1] * (wanted - given) + list(extents)
        elif given < wanted or (given > wanted and not pattern.open):
            raise Mismatch(f"{pattern.target} has {given} extents; allowed: {pattern}")
        offset = len(extents) - wanted
        for i, token in enumerate(pattern.tokens):
            self._bind(pattern, token, offset + i, extents[offset + i])

    def _bind(self, pattern: ShapePattern, token: str, position: int, extent: Extent) -> None:
        if token == "_":
            return
        if token.isdigit():
            known: Extent = int(token)
        elif token in self.extents:
            known = self.extents[token]
        else:
            self.extents[token] = extent
            return
        if isinstance(known, int) and isinstance(extent, int):
            if known != extent:
                wanted = token if token.isdigit() else f"{token} = {known}"
                raise Mismatch(f"extent {position} of {pattern.target} is {extent}, not {wanted}; allowed: {pattern}")
            return
        if known is None or known != extent:
            self.doubts.append((f"extent {position} of {pattern.target}", pattern))
        if isinstance(extent, int):
            self.extents[token] = extent

    def values(self) -> dict[str, object]:
        """Return the extents as values for limits."""
        return {name: extent if isinstance(extent, int) else Unknown(name) for name, extent in self.extents.items()}


def parse_pattern(target: str, node: Node) -> ShapePattern:
    """Parse the pattern under `target`.

    Raises:
        SchemaError: It is not a sequence of names, digits and `_`, with an optional leading `...`.
    """
    tokens = node.text(f"shape of {target}").split()
    opened = tokens[0] == "..."
    tokens = tokens[opened:]
    for token in tokens:
        if token == "...":
            raise node.error(f"'...' stands first or not at all in the shape of {target}")
        if token != "_" and not _LITERAL.fullmatch(token) and not _NAME.fullmatch(token):
            raise node.error(f"'{token}' is no extent in the shape of {target}: a name, a number, _ or a leading ...")
    return ShapePattern(target, tuple(tokens), opened, node.where)
