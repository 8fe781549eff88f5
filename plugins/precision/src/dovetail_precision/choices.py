"""Choices of a typing variable: each assigns a format to all of its ports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import FLOAT_FORMATS, Format
from dovetail.planning import PortRule

from dovetail_precision.port_groups import PortGroup, merged

if TYPE_CHECKING:
    from dovetail.planning import Claim


class SharedFormat:
    """A quantized format with a sharing group, for a value that may have several scales in one format.

    Attributes:
        format: The format.
    """

    __slots__ = ("format",)

    def __init__(self, format_: Format):
        self.format = format_

    def __str__(self) -> str:
        return str(self.format)


def plain(held: Format | SharedFormat) -> Format:
    """Return the format without its sharing group."""
    return held.format if isinstance(held, SharedFormat) else held


class FormatChoice:
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
    def of(cls, formats: Mapping[str, Format], nominal: str) -> FormatChoice:
        """Make the choice with these formats by port; `nominal` names the nominal output."""
        first = formats[nominal]
        others = {port: format_ for port, format_ in formats.items() if format_ is not first}
        return cls(first, MappingProxyType(others)) if others else uniform(first)

    def format_of(self, port: str) -> Format:
        """Return the format of a port."""
        return self.ports.get(port, self.nominal) if self.ports else self.nominal

    @property
    def quantized(self) -> bool:
        """Whether any port is quantized."""
        return self.nominal.quantized or any(format_.quantized for format_ in self.ports.values())

    def __repr__(self) -> str:
        others = "".join(f", {port}: {format_}" for port, format_ in self.ports.items())
        return f"<Choice {self.nominal}{others}>"


_NOTHING: Mapping[str, Format] = MappingProxyType({})


@cache
def uniform(format_: Format) -> FormatChoice:
    """Return the choice that gives every port one format."""
    return FormatChoice(format_, _NOTHING)


class Choices:
    """The choices of a variable, in order of preference: quantized ones as in the backend's file.

    Attributes:
        floats: The formats of the choices that give every port one float format.
        quantized: The other choices, with at least one quantized port.
    """

    __slots__ = ("_all", "_by_nominal", "floats", "quantized")

    def __init__(self, choices: Iterable[FormatChoice]):
        self._all = tuple(choices)
        self.quantized = tuple(choice for choice in self._all if choice.quantized or choice.ports)
        self.floats = frozenset(choice.nominal for choice in self._all if choice not in self.quantized)
        self._by_nominal: dict[Format, FormatChoice] = {}
        for choice in self._all:
            self._by_nominal.setdefault(choice.nominal, choice)

    def with_nominal(self, format_: Format) -> FormatChoice | None:
        """Return the first choice whose nominal output has this format; None if there is none."""
        return self._by_nominal.get(format_)

    def with_floats_at(self, ports: Collection[str]) -> Choices:
        """Return the choices that quantize none of these ports."""
        if not ports:
            return self
        return Choices(choice for choice in self if not any(choice.format_of(port).quantized for port in ports))

    def __iter__(self) -> Iterator[FormatChoice]:
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


MOST = 16
"""The largest number of choices of a variable."""

_LONGEST_SEARCH = 20_000  # steps; only contrived rules come near
_NO_RULE = PortRule()


class _Unit(NamedTuple):
    """Ports that share one format, with the allowed formats; or a single port."""

    ports: tuple[str, ...]
    formats: tuple[Format, ...]


def combinations(
    groups: Sequence[PortGroup], claimed: Mapping[str, Sequence[Format]], rules: Mapping[str, PortRule]
) -> list[FormatChoice]:
    """Return the legal combinations of formats of some ports of a node, at most `MOST`, in the order of the file.

    Ports of one type parameter express one float type. Ports with `one_choice`, and those with `same_scale`, have one
    format. A port whose scale is a product has a scale per channel if and only if one of the factors has.

    Args:
        groups: The ports, by type parameter of the schema.
        claimed: The formats of the claim by port; a port that is not listed may have any float that the schema allows.
        rules: Further requirements of the backend, by port.
    """
    group_of = {name: group for group in groups for _, name in (*group.inputs, *group.outputs)}
    outputs = [name for group in groups for _, name in group.outputs]
    inputs = [name for group in groups for _, name in group.inputs]
    names = [*inputs, *outputs]
    units = _units(names, group_of, claimed, rules)
    found: list[FormatChoice] = []
    for formats in _search(units, group_of, rules):
        found.append(FormatChoice.of({name: formats[name] for name in names}, (outputs or inputs)[0]))
        if len(found) == MOST:
            break
    return found


def _units(
    names: Sequence[str],
    group_of: Mapping[str, PortGroup],
    claimed: Mapping[str, Sequence[Format]],
    rules: Mapping[str, PortRule],
) -> list[_Unit]:
    """Return the decisions in port order; a port whose scale is a product comes after its factors."""
    allowed = {name: _allowed(group_of[name], claimed.get(name)) for name in names}
    units, tied = [], set()
    for name in names:
        rule = rules.get(name, _NO_RULE)
        if name in tied:
            continue
        ports = [name]
        for other in names if rule.one_choice or rule.same_scale else ():
            theirs = rules.get(other, _NO_RULE)
            both = rule.one_choice and theirs.one_choice or rule.same_scale and theirs.same_scale
            if both and other != name and other not in tied:
                ports.append(other)
        tied.update(ports)
        common = tuple(format_ for format_ in allowed[name] if all(format_ in allowed[port] for port in ports))
        units.append(_Unit(tuple(ports), common))
    return sorted(units, key=lambda unit: _is_product(unit, rules))


def _is_product(unit: _Unit, rules: Mapping[str, PortRule]) -> bool:
    return any(rule.factors for port in unit.ports for rule in rules.get(port, _NO_RULE).parameters.values())


def _allowed(group: PortGroup, claimed: Sequence[Format] | None) -> tuple[Format, ...]:
    """Return the allowed formats of a port; the schema restricts the expressed type of quantized formats."""
    listed = claimed if claimed is not None else [format_ for format_ in FLOAT_FORMATS if format_ in group.allowed]
    return tuple(format_ for format_ in listed if Format.of(format_.computes_in) in group.allowed)


def _search(
    units: Sequence[_Unit], group_of: Mapping[str, PortGroup], rules: Mapping[str, PortRule]
) -> Iterator[dict[str, Format]]:
    """Yield assignments in lexicographic order, depth first."""
    formats: dict[str, Format] = {}
    expressed: list[dict[PortGroup, str]] = [{}]
    position = [0] * (len(units) + 1)
    depth = 0
    for _ in range(_LONGEST_SEARCH):
        if depth < 0:
            return
        if depth == len(units):
            yield dict(formats)
            depth -= 1
            expressed.pop()
            continue
        unit = units[depth]
        if position[depth] == len(unit.formats):
            position[depth] = 0
            depth -= 1
            if expressed and len(expressed) > 1:
                expressed.pop()
            continue
        format_ = unit.formats[position[depth]]
        position[depth] += 1
        expresses = {**expressed[-1], **{group_of[port]: format_.computes_in for port in unit.ports}}
        same = all(expressed[-1].get(group, kind) == kind for group, kind in expresses.items())
        if same and all(_fits(format_, rules.get(port, _NO_RULE), formats) for port in unit.ports):
            formats.update(dict.fromkeys(unit.ports, format_))
            expressed.append(expresses)
            depth += 1


def _fits(format_: Format, rule: PortRule, formats: Mapping[str, Format]) -> bool:
    """Check whether a scale that is a product has the granularity of its factors."""
    parameters = rule.parameters.get(format_)
    if parameters is None or not parameters.factors:
        return True
    factors = [formats[port] for port in parameters.factors if port in formats]
    if not all(factor.quantized and factor.group is None for factor in factors):
        return False
    return (format_.axis is not None) == any(factor.axis is not None for factor in factors)


class NodeChoices:
    """Finds the choices of one model's nodes; cached, as claims on equal nodes share their ports and rules.

    A type parameter is one variable. Parameters with a port that may be quantized are one variable together, because
    scales relate their ports.
    """

    def __init__(self) -> None:
        # Keep the claim's parts alive with the answer: otherwise other objects could reuse their ids.
        self._known: dict[tuple[int, int], tuple[object, object, tuple[tuple[PortGroup, Choices], ...]]] = {}

    def of(self, groups: Sequence[PortGroup], claim: Claim | None) -> Sequence[tuple[PortGroup, Choices]]:
        """Return the variables of a node as ports and choices; choices are empty if nothing fits.

        Args:
            groups: The float ports by type parameter; equal nodes share the same object.
            claim: The claim on the node.
        """
        ports = claim.ports if claim is not None else None
        key = (id(groups), id(ports))
        known = self._known.get(key)
        if known is None or known[0] is not groups or known[1] is not ports:
            known = self._known[key] = (groups, ports, tuple(_choices_of(groups, claim)))
        return known[2]

    def obstacle(self, group: PortGroup, claim: Claim | None) -> str:
        """Return why a group has no choice."""
        names = ", ".join(sorted(group.names))
        if claim is not None and _may_be_quantized(group, claim):
            return f"no combination of formats fits its ports {names}"
        return f"no type fits its ports {names}"


def _choices_of(groups: Sequence[PortGroup], claim: Claim | None) -> Iterator[tuple[PortGroup, Choices]]:
    if claim is None or not claim.ports:
        yield from ((group, float_choices(group.allowed)) for group in groups)
        return
    together = [group for group in groups if _may_be_quantized(group, claim)]
    for group in groups:
        if group not in together:
            allowed = group.allowed
            for name in group.names & claim.ports.keys():
                allowed &= frozenset(claim.ports[name])
            yield group, float_choices(allowed)
        elif group is together[0]:
            yield merged(together), Choices(combinations(together, claim.ports, claim.rules))


def _may_be_quantized(group: PortGroup, claim: Claim) -> bool:
    listed = (format_ for name in group.names for format_ in claim.ports.get(name, ()))
    return not claim.keep >= group.names and any(format_.quantized for format_ in listed)
