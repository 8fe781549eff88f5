"""What a backend says of one node: may it take it, in which types, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Refusal", "Verdict"]


class Refusal(NamedTuple):
    """One reason why a node is not taken.

    Attributes:
        text: A sentence for a person.
        source: File and line of the rule.
    """

    text: str
    source: str

    def __str__(self) -> str:
        return f"{self.text} [{self.source}]" if self.source else self.text


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a backend says of one node.

    Attributes:
        ok: True, False, or None when only the region can tell.
        reasons: Why not; empty unless `ok` is False.
        role: Its role, or empty.
        policy: How autocast treats it, or empty.
        types: Allowed element types by port, only for ports that carry floats or that the file quantises; elements of
            a variadic port are called `in0`, `in1`, ... Empty when the file says nothing about types.
        set: Attributes to rewrite when it goes low.
        keep: Ports that stay in the high precision even then; `types` does not take them into account.
        row: Number of the row that decided, from 0; None when the rule has no rows or none fits.
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
