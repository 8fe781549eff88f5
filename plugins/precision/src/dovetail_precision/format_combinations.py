"""Combinations of formats: the choices of a node that may be quantised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dovetail.ir.formats import FLOAT_FORMATS, Format
from dovetail.planning.verdict import PortRule

from dovetail_precision.choices import Choice
from dovetail_precision.port_groups import PortGroup

MOST = 16
"""The largest number of choices of a variable."""

_LONGEST_SEARCH = 20_000  # steps; only contrived rules come near
_NO_RULE = PortRule()


class _Unit(NamedTuple):
    """Ports that have one format, with what it may be; or one port."""

    ports: tuple[str, ...]
    formats: tuple[Format, ...]


def combinations(
    groups: Sequence[PortGroup], claimed: Mapping[str, Sequence[Format]], rules: Mapping[str, PortRule]
) -> list[Choice]:
    """Return the legal combinations of formats of some ports of a node, at most `MOST`, in the order of the file.

    Ports of one type parameter express one float type. Ports with `one_choice`, and those with `same_scale`, have one
    format. A port whose scale is a product has a scale per channel if and only if one of the factors has.

    Args:
        groups: The ports, by type parameter of the schema.
        claimed: The formats of the claim by port; a port that is not listed may have any float that the schema allows.
        rules: What else the backend requires, by port.
    """
    group_of = {name: group for group in groups for _, name in (*group.inputs, *group.outputs)}
    outputs = [name for group in groups for _, name in group.outputs]
    inputs = [name for group in groups for _, name in group.inputs]
    names = [*inputs, *outputs]
    units = _units(names, group_of, claimed, rules)
    found: list[Choice] = []
    for formats in _search(units, group_of, rules):
        found.append(Choice.of({name: formats[name] for name in names}, (outputs or inputs)[0]))
        if len(found) == MOST:
            break
    return found


def _units(
    names: Sequence[str],
    group_of: Mapping[str, PortGroup],
    claimed: Mapping[str, Sequence[Format]],
    rules: Mapping[str, PortRule],
) -> list[_Unit]:
    """The decisions in the order of the ports; a port whose scale is a product comes after its factors."""
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
    """The formats of a port: the schema binds what a quantised format expresses."""
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
    """Whether a scale that is a product has the granularity of its factors."""
    parameters = rule.parameters.get(format_)
    if parameters is None or not parameters.factors:
        return True
    factors = [formats[port] for port in parameters.factors if port in formats]
    if not all(factor.quantised and factor.group is None for factor in factors):
        return False
    return (format_.axis is not None) == any(factor.axis is not None for factor in factors)
