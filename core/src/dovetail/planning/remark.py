"""Remarks: the reasons of decisions, as data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

__all__ = ["SLOT", "Kind", "Remark", "assumed", "template"]

SLOT = "'{}'"
"""What stands in a `template` for a quoted name."""

_QUOTED = re.compile(r"'[^']*'")

Kind = Literal["passed", "missed", "failed", "analysis"]


@dataclass(frozen=True, slots=True)
class Remark:
    """The reason of one decision.

    Attributes:
        kind: `passed` (done), `missed` (not done, on purpose), `failed` (attempted in vain), `analysis` (a fact).
        node: Name of the node it is about; empty for the whole model.
        pass_: The pass or strategy that decided.
        rule: A short stable name of the rule, in kebab case.
        why: One readable sentence.
        because: Names of the nodes that forced the decision.
        suggest: The cheapest thing the user can do about it, or empty.
        source: File and line of the rule (`bpu_int8.yaml:34`), or empty.
    """

    kind: Kind
    node: str
    pass_: str
    rule: str
    why: str
    because: tuple[str, ...] = ()
    suggest: str = ""
    source: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the remark as it stands in plans and `remarks.json`: `pass_` as `pass`, without empty fields."""
        pairs = ((f.name.rstrip("_"), getattr(self, f.name)) for f in fields(self))
        return {key: list(value) if isinstance(value, tuple) else value for key, value in pairs if value}

    @classmethod
    def from_dict(cls, data: dict) -> Remark:
        """Parse a mapping of `as_dict`.

        Raises:
            ValueError: A field is malformed.
            TypeError: A key is unknown, or `kind` or `pass` is missing.
        """
        values = {("pass_" if key == "pass" else key): value for key, value in data.items()}
        because = values.pop("because", ())
        if not isinstance(because, (list, tuple)) or not all(isinstance(v, str) for v in (*because, *values.values())):
            raise ValueError(f"the remark on '{values.get('node', '')}' has a field that is not text")
        return cls(**{"node": "", "rule": "", "why": "", **values}, because=tuple(because))


def assumed(remarks: Iterable[Remark]) -> list[str]:
    """What was assumed of the whole model, and the user can change: notes of `plan` and `compile`."""
    return [remark.why for remark in remarks if remark.kind == "analysis" and remark.suggest and not remark.node]


def template(why: str) -> str:
    """Replace quoted names by slots, so that reasons can be compared."""
    return why if SLOT in why else _QUOTED.sub(SLOT, why)
