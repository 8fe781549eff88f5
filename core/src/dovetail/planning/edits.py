"""Edits: named changes of the graph next to a node of the source model, requested by a user or a strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.errors import UsageError
from dovetail.text import did_you_mean

SIDES = ("before", "after")
_FORM = "write KIND=NODE, KIND=NODE:before or KIND=NODE:after"


@dataclass(frozen=True, slots=True)
class Edit:
    """One requested change of the graph, as data.

    Attributes:
        kind: Name of a registered edit, such as `unit-conv`.
        at: The node to edit next to: its name, or its identity in a plan.
        side: `before` or `after`.
        operator: Operator of that node, if the edit comes from a plan; empty to accept any.
        key: Structural key of that node, if the edit comes from a plan.
    """

    kind: str
    at: str
    side: str = "after"
    operator: str = ""
    key: str = ""

    @classmethod
    def parse(cls, text: str | Edit) -> Edit:
        """Parse `KIND=NODE[:before|after]`; an `Edit` is returned unchanged.

        Raises:
            UsageError: The text is malformed.
        """
        if isinstance(text, Edit):
            return text
        kind, equals, rest = text.partition("=")
        at, colon, side = rest.rpartition(":")
        if side not in SIDES or not colon:
            at, side = rest, "after"
        if not (equals and kind and at):
            raise UsageError(f"{text!r} is not an edit", _FORM)
        return cls(kind, at, side)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Edit:
        """Parse a mapping of `as_dict`.

        Raises:
            ValueError: It is malformed.
        """
        known = cls.__slots__
        if not isinstance(data, Mapping) or not all(isinstance(text, str) for text in data.values()):
            raise ValueError(f"{str(data)[:40]!r} is not an edit")
        if unknown := [key for key in data if key not in known]:
            raise ValueError(f"an edit has no '{unknown[0]}'{did_you_mean(unknown[0], known)}")
        if not data.get("kind") or not data.get("at") or data.get("side", "after") not in SIDES:
            raise ValueError("an edit needs 'kind', 'at', and as 'side' before or after")
        return cls(**data)

    def as_dict(self) -> dict[str, str]:
        """Return the edit as plain data."""
        return {name: text for name in self.__slots__ if (text := getattr(self, name))}

    def __str__(self) -> str:
        return f"{self.kind}={self.at}:{self.side}"
