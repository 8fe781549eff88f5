"""Shapes: `X: N C H W` gives names to extents, `strides: SH SW` to the elements of a list attribute.

The same name is the same extent wherever it stands, a digit is itself, `_` is anything, a leading `...` is any number
of extents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dovetail_schemas.terms import Unknown
from dovetail_schemas.yaml_source import Node

Extent = int | str | None
"""A number, the name of a symbolic extent, or None for one that nobody named."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LITERAL = re.compile(r"[0-9]{1,18}")


class Mismatch(Exception):
    """The shape does not fit; the message says where."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern of one port or list attribute.

    Attributes:
        target: The port or attribute.
        tokens: Its extents from left to right, without the leading `...`.
        open: It began with `...`.
        source: File and line.
    """

    target: str
    tokens: tuple[str, ...]
    open: bool
    source: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names it gives."""
        return tuple(token for token in self.tokens if token != "_" and not token.isdigit())

    def __str__(self) -> str:
        return f"{self.target}: {' '.join(('...',) * self.open + self.tokens)}"


class Binding:
    """What the names stand for, while the patterns of one row are laid over a node.

    Attributes:
        doubts: What is not known before run time, with the pattern that needs it, in the order met.
    """

    def __init__(self) -> None:
        self.extents: dict[str, Extent] = {}
        self.doubts: list[tuple[str, Pattern]] = []

    def lay(self, pattern: Pattern, extents: Sequence[Extent] | None, pad: bool = False) -> None:
        """Bind the names of `pattern`.

        Args:
            pattern: The pattern.
            extents: The extents of the port, or None when not even their number is known.
            pad: Missing leading extents are 1 (operators that broadcast).

        Raises:
            Mismatch: It does not fit.
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

    def _bind(self, pattern: Pattern, token: str, position: int, extent: Extent) -> None:
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
        """The extents as values of a limit's names."""
        return {name: extent if isinstance(extent, int) else Unknown(name) for name, extent in self.extents.items()}


def parse_pattern(target: str, node: Node) -> Pattern:
    """The pattern under `target`.

    Raises:
        SchemaError: It is no sequence of names, digits, `_` with a leading `...` at most.
    """
    tokens = node.text(f"shape of {target}").split()
    opened = tokens[0] == "..."
    tokens = tokens[opened:]
    for token in tokens:
        if token == "...":
            raise node.error(f"'...' stands first or not at all in the shape of {target}")
        if token != "_" and not _LITERAL.fullmatch(token) and not _NAME.fullmatch(token):
            raise node.error(f"'{token}' is no extent in the shape of {target}: a name, a number, _ or a leading ...")
    return Pattern(target, tuple(tokens), opened, node.where)
