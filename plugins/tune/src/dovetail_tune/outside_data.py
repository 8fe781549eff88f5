"""Data from outside, checked before its use: an edited journal, the answer of another machine."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


class Form(ABC):
    """A form that data must have."""

    @abstractmethod
    def problem(self, value: object) -> str:
        """Return what is wrong with a value, beginning with its place in it; empty if nothing is."""


@dataclass(frozen=True)
class Text(Form):
    """A text; with `choices`, one of them."""

    choices: tuple[str, ...] = ()

    def problem(self, value: object) -> str:
        """See `Form`."""
        if isinstance(value, str) and (not self.choices or value in self.choices):
            return ""
        return f"expected {' or '.join(map(repr, self.choices)) or 'a text'}"


@dataclass(frozen=True)
class FiniteNumber(Form):
    """A finite number within limits."""

    least: float = -math.inf
    most: float = math.inf
    whole: bool = False

    def problem(self, value: object) -> str:
        """See `Form`."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"expected a {'whole ' * self.whole}number"
        if self.whole and not isinstance(value, int):
            return "expected a whole number"
        if not math.isfinite(float(value)) or not self.least <= value <= self.most:
            return f"expected a number from {self.least:g} to {self.most:g}"
        return ""


class Flag(Form):
    """True or false."""

    def problem(self, value: object) -> str:
        """See `Form`."""
        return "" if isinstance(value, bool) else "expected true or false"


class Decibels(Form):
    """A number as text, which may be infinite, because JSON has no infinity."""

    def problem(self, value: object) -> str:
        """See `Form`."""
        try:
            return "expected decibels" if math.isnan(float(str(value))) else ""
        except ValueError:
            return "expected decibels"


@dataclass(frozen=True)
class Maybe(Form):
    """Nothing, or a value of another form."""

    form: Form

    def problem(self, value: object) -> str:
        """See `Form`."""
        return "" if value is None else self.form.problem(value)


@dataclass(frozen=True)
class ListOf(Form):
    """A list of values of one form, of at least some length."""

    form: Form
    least: int = 0

    def problem(self, value: object) -> str:
        """See `Form`."""
        if not isinstance(value, list) or len(value) < self.least:
            return f"expected a list of at least {self.least}" if self.least else "expected a list"
        return next((f"{number}: {why}" for number, one in enumerate(value) if (why := self.form.problem(one))), "")


@dataclass(frozen=True)
class TupleOf(Form):
    """A list of values with a form each."""

    forms: tuple[Form, ...]

    def problem(self, value: object) -> str:
        """See `Form`."""
        if not isinstance(value, list) or len(value) != len(self.forms):
            return f"expected a list of {len(self.forms)}"
        found = zip(self.forms, value)
        return next((f"{number}: {why}" for number, (form, one) in enumerate(found) if (why := form.problem(one))), "")


@dataclass(frozen=True)
class MapOf(Form):
    """Values of one form by name."""

    form: Form

    def problem(self, value: object) -> str:
        """See `Form`."""
        if not isinstance(value, dict):
            return "expected a mapping"
        return next((f"{name}: {why}" for name, one in value.items() if (why := self.form.problem(one))), "")


@dataclass(frozen=True)
class Fields(Form):
    """A mapping that has certain fields; others may stand beside them."""

    fields: Mapping[str, Form]

    def problem(self, value: object) -> str:
        """See `Form`."""
        if not isinstance(value, dict):
            return "expected a mapping"
        for name, form in self.fields.items():
            if name not in value and not isinstance(form, Maybe):
                return f"{name} is missing"
            if why := form.problem(value.get(name)):
                return f"{name}: {why}"
        return ""


class Race(Fields):
    """The outcome of a race: its runners have turns together, so that they can be compared."""

    def __init__(self, more: Mapping[str, Form] | None = None) -> None:
        turns = MapOf(ListOf(FiniteNumber(1e-12, 1e12), least=1))
        own = {"leader": Text(), "turns": turns, "failed": MapOf(Text()), "heats": ListOf(turns)}
        super().__init__({**own, **(more or {})})

    def problem(self, value: object) -> str:
        """See `Form`."""
        if why := super().problem(value):
            return why
        assert isinstance(value, dict), "checked above"
        turns = value["turns"]
        if turns and value["leader"] not in turns:
            return "leader: it has no turns"
        first = value["heats"][0] if value["heats"] else turns
        alone = next((name for name in turns if name not in first), None)
        return "" if alone is None else f"heats: {alone} has no turns in the first one"


def unknown(names: Iterable[str], known: Collection[str]) -> str:
    """Return the first of `names` that nobody asked for; empty if there is none."""
    return next((name for name in names if name not in known), "")


SIZE = FiniteNumber(0, 2.0**63, whole=True)
