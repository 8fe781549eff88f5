"""Verdicts: whether a backend supports a node, in which types, or why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Refusal", "Verdict"]


class Refusal(NamedTuple):
    """One reason why a node is not supported.

    Attributes:
        text: One readable sentence.
        source: File and line of the rule.
    """

    text: str
    source: str

    def __str__(self) -> str:
        return f"{self.text} [{self.source}]" if self.source else self.text


@dataclass(frozen=True, slots=True)
class Verdict:
    """The legality of one node on a backend.

    Attributes:
        ok: True, False, or None if that depends on the region.
        reasons: Why it is not supported; empty unless `ok` is False.
        role: Its role, or empty.
        policy: Its autocast policy, or empty.
        types: Allowed element types by port, only for ports that carry floats or that the file quantises; elements of
            a variadic port are named `in0`, `in1`, ... Empty if the file does not restrict types.
        set: Attributes to set if it is typed low.
        keep: Ports that stay in the high precision; `types` ignores them.
        row: Index of the row that decided; None if the rule has no rows or none matches.
        source: File and line that decided.
    """

    ok: bool | None
    reasons: tuple[Refusal, ...] = ()
    role: str = ""
    policy: str = ""
    types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    set: Mapping[str, object] = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    row: int | None = None
    source: str = ""
