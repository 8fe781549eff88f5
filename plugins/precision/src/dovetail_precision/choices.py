"""Choices of a typing variable: each assigns a format to all of its ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType

from dovetail.ir.formats import FLOAT_FORMATS, Format


class SharedFormat:
    """A quantised format together with a sharing group, where a value may have several of these in one format.

    Attributes:
        format: The format.
    """

    __slots__ = ("format",)

    def __init__(self, format_: Format):
        self.format = format_

    def __str__(self) -> str:
        return str(self.format)


def plain(held: Format | SharedFormat) -> Format:
    """Return the format of what a value is held as."""
    return held.format if isinstance(held, SharedFormat) else held


class Choice:
    """One assignment of formats to the ports of a variable.

    Choices are compared by identity; those that give all ports one format are interned: see `uniform`.

    Attributes:
        nominal: The format of the nominal output, and of every port that is not in `ports`.
        ports: The formats of the ports that differ from it.
    """

    __slots__ = ("nominal", "ports")

    def __init__(self, nominal: Format, ports: Mapping[str, Format]):
        self.nominal = nominal
        self.ports = ports

    @classmethod
    def of(cls, formats: Mapping[str, Format], nominal: str) -> Choice:
        """Make the choice with these formats by port; `nominal` names the nominal output."""
        first = formats[nominal]
        others = {port: format_ for port, format_ in formats.items() if format_ is not first}
        return cls(first, MappingProxyType(others)) if others else uniform(first)

    def format_of(self, port: str) -> Format:
        """Return the format of a port."""
        return self.ports.get(port, self.nominal) if self.ports else self.nominal

    @property
    def quantised(self) -> bool:
        """Whether any port is quantised."""
        return self.nominal.quantised or any(format_.quantised for format_ in self.ports.values())

    def __repr__(self) -> str:
        others = "".join(f", {port}: {format_}" for port, format_ in self.ports.items())
        return f"<Choice {self.nominal}{others}>"


_NOTHING: Mapping[str, Format] = MappingProxyType({})


@cache
def uniform(format_: Format) -> Choice:
    """Return the choice that gives every port one format."""
    return Choice(format_, _NOTHING)


class Choices:
    """The choices of a variable, in order of preference: quantised ones as in the backend's file.

    Attributes:
        floats: The formats of the choices that give every port one float format.
        quantised: The other choices, with at least one quantised port.
    """

    __slots__ = ("_all", "_by_nominal", "floats", "quantised")

    def __init__(self, choices: Iterable[Choice]):
        self._all = tuple(choices)
        self.quantised = tuple(choice for choice in self._all if choice.quantised or choice.ports)
        self.floats = frozenset(choice.nominal for choice in self._all if choice not in self.quantised)
        self._by_nominal: dict[Format, Choice] = {}
        for choice in self._all:
            self._by_nominal.setdefault(choice.nominal, choice)

    def with_nominal(self, format_: Format) -> Choice | None:
        """Return the first choice whose nominal output has this format; None if there is none."""
        return self._by_nominal.get(format_)

    def __iter__(self) -> Iterator[Choice]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, choice: object) -> bool:
        return choice in self._all

    def __repr__(self) -> str:
        return f"<Choices {', '.join(map(repr, self._all))}>"


@cache
def float_choices(formats: frozenset[Format]) -> Choices:
    """Return the choices of a variable whose ports all have one of these float formats."""
    return Choices(uniform(format_) for format_ in FLOAT_FORMATS if format_ in formats)
