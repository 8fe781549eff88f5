"""Limits of one operator, learned from the nodes that were tried.

A clause describes nodes that the engine does not compute: one condition, or several that hold together. Clauses are
chosen greedily: each time the one that excludes the most wrong nodes and the fewest right ones.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail_testing.probe.observing import UNKNOWN, NodeNames, Observation

_ENGINE = re.compile(r"^[\w-]+ (?:refuses|fails at|failed while|could not load) [^:]*: ")
"""What an engine's error begins with, which is the same for all nodes."""

RESERVED = re.compile(r"^(true|false|null|yes|no|on|off|~)$", re.IGNORECASE)
"""Texts that mean something else in YAML without quotes."""

_PRICE = 3  # right nodes that are excluded count as so many wrong ones
_MOST_VALUES = 40  # of a name, for lists of allowed values
_MOST_PAIRED = 160  # conditions that are combined in pairs
_MOST_TRIPLED = 40
_COMPLEXITY = 0.4  # what a condition more costs, in wrong nodes


@dataclass(frozen=True)
class Condition:
    """A condition on a node, which a limit can forbid.

    Attributes:
        name: The name, or the term, that it is about.
        guard: The term and the range in which it holds, as under `when`; empty if no range says that.
        limit: The range in which it does not hold, as under `limits`; empty for a type.
        value: The forbidden value of a name whose limit lists the allowed ones; None for other conditions.
        parameter: The type parameter, for a condition on an element type.
        extent: Port and place from the end, for a condition on an extent.
        forbids: Whether a limit refuses a node. Unlike `holds`, it does where the value is known only at run time.
        holds: Whether a guard lets a limit apply.
    """

    name: str
    guard: str
    limit: str
    forbids: Callable[[NodeNames], bool] = field(compare=False)
    holds: Callable[[NodeNames], bool] = field(compare=False)
    value: Any = None
    parameter: str = ""
    extent: tuple[str, int] | None = None

    @property
    def is_type(self) -> bool:
        """Whether it is about an element type."""
        return bool(self.parameter)


@dataclass(frozen=True)
class Clause:
    """Nodes that the engine does not compute: `condition` under all `guards`.

    Attributes:
        guards: The conditions under which the limit applies.
        condition: What is then forbidden.
        wrong: The wrong nodes that it excludes.
        lost: The number of right nodes that it excludes.
    """

    guards: tuple[Condition, ...]
    condition: Condition
    wrong: tuple[Observation, ...] = ()
    lost: int = 0

    @property
    def reason(self) -> str:
        """The most frequent reason of the nodes that it excludes."""
        return Counter(map(reason_of, self.wrong)).most_common(1)[0][0] if self.wrong else ""

    def excludes(self, names: NodeNames) -> bool:
        """Return whether it excludes a node."""
        return self.condition.forbids(names) and all(guard.holds(names) for guard in self.guards)


@dataclass
class OperatorRule:
    """What was learned about an operator.

    Attributes:
        operator: The operator.
        observations: The nodes that were tried.
        types: The element types that the engine computes, by type parameter.
        ports: The parameter of each port.
        clauses: What it does not compute of them.
    """

    operator: str
    observations: Sequence[Observation]
    types: dict[str, list[str]] = field(default_factory=dict)
    ports: dict[str, str] = field(default_factory=dict)
    clauses: list[Clause] = field(default_factory=list)

    @property
    def right(self) -> int:
        """The number of nodes that the engine computes."""
        return sum(each.right for each in self.observations)

    @property
    def is_taken(self) -> bool:
        """Whether the file takes the operator: some nodes are right, and more than limits would lose."""
        return any(each.right and self.accepts(each.names) for each in self.observations)

    def accepts(self, names: NodeNames) -> bool:
        """Return whether the rule accepts a node."""
        typed = all(dtype in self.types.get(parameter, ()) for parameter, dtype in names.types.items())
        return typed and not any(clause.excludes(names) for clause in self.clauses)


def learned(operator: str, observations: Sequence[Observation]) -> OperatorRule:
    """Learn the rule of an operator from the nodes that were tried."""
    rule = OperatorRule(operator, observations)
    for each in observations:
        rule.ports.update(each.names.ports)
        for parameter, dtype in each.names.types.items():
            listed = rule.types.setdefault(parameter, [])
            if each.right and dtype not in listed:
                listed.append(dtype)
    typed = [each for each in observations if all(t in rule.types[p] for p, t in each.names.types.items())]
    rule.clauses = _clauses(typed, rule)
    return rule


def _clauses(observations: Sequence[Observation], rule: OperatorRule) -> list[Clause]:
    """Choose clauses greedily until no more wrong nodes can be excluded at a profit."""
    bits = _Bits(observations)
    bad = bits.mask(lambda each: not each.right)
    good = bits.mask(lambda each: each.right)
    if not bad or not good:
        return []
    conditions = list(_conditions(observations, rule))
    candidates = list(_candidates(conditions, bits, bad, good))
    chosen: list[Clause] = []
    while bad:
        gains = [
            (mask & bad).bit_count() - _PRICE * (mask & good).bit_count() - _COMPLEXITY * len(guards)
            for mask, guards, _ in candidates
        ]
        best = max(range(len(gains)), key=gains.__getitem__, default=-1)
        if best < 0 or gains[best] <= 0:
            break
        mask, guards, at = candidates[best]
        own, lost = bits.chosen(mask & bad), len(bits.chosen(mask & good))
        chosen.append(Clause(tuple(conditions[guard] for guard in guards), conditions[at], own, lost))
        bad, good = bad & ~mask, good & ~mask
    return chosen


class _Bits:
    """Sets of nodes as numbers, in which each node has as many bits as its weight."""

    def __init__(self, observations: Sequence[Observation]):
        self._observations = observations
        ends = list(itertools.accumulate((each.weight for each in observations), initial=0))
        self._masks = [((1 << each.weight) - 1) << begin for each, begin in zip(observations, ends, strict=False)]

    def mask(self, includes: Callable[[Observation], bool]) -> int:
        """Return the set of the nodes for which a function is true."""
        chosen = 0
        for each, mask in zip(self._observations, self._masks, strict=True):
            if includes(each):
                chosen |= mask
        return chosen

    def chosen(self, mask: int) -> tuple[Observation, ...]:
        """Return the nodes of a set."""
        return tuple(each for each, own in zip(self._observations, self._masks, strict=True) if own & mask)


def _candidates(
    conditions: Sequence[Condition], bits: _Bits, bad: int, good: int
) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """Yield sets of nodes with the guards and the condition that describe them, the simple ones first."""
    forbidden = [bits.mask(_met_by(one.forbids)) for one in conditions]
    held = [bits.mask(_met_by(one.holds)) if one.guard else 0 for one in conditions]
    seen: set[int] = set()
    useful = [at for at in range(len(conditions)) if forbidden[at] & bad]
    for at in useful:
        if forbidden[at] not in seen:
            seen.add(forbidden[at])
            yield forbidden[at], (), at
    paired = sorted(useful, key=lambda at: -(forbidden[at] & bad).bit_count())[:_MOST_PAIRED]
    guards = sorted(range(len(conditions)), key=lambda at: -(held[at] & bad).bit_count())[:_MOST_PAIRED]
    guards = [at for at in guards if held[at] & bad]
    for number in (1, 2):
        if number == 2:
            paired, guards = paired[:_MOST_TRIPLED], guards[:_MOST_TRIPLED]
        for at, chosen in itertools.product(paired, itertools.combinations(guards, number)):
            if len({conditions[each].name for each in (at, *chosen)}) <= len(chosen):
                continue  # a limit that depends on the value that it limits reads as a riddle
            mask = forbidden[at]
            for guard in chosen:
                mask &= held[guard]
            if mask not in seen and (mask & bad).bit_count() > _PRICE * (mask & good).bit_count():
                seen.add(mask)
                yield mask, chosen, at


def _met_by(condition: Callable[[NodeNames], bool]) -> Callable[[Observation], bool]:
    return lambda each: condition(each.names)


def _conditions(observations: Sequence[Observation], rule: OperatorRule) -> Iterator[Condition]:
    """Yield conditions on types, names and extents that some of the nodes meet and others do not."""
    for parameter, allowed in rule.types.items():
        for dtype in allowed if len(allowed) > 1 else ():
            yield _on_type(parameter, dtype)
    found: dict[str, list[Any]] = {}
    for each in observations:
        for name, value in each.names.values.items():
            if value is not UNKNOWN and value not in found.setdefault(name, []):
                found[name].append(value)
    right = [each.names for each in observations if each.right]
    for name, values in found.items():
        yield from _on_name(name, values, right, any(name not in each.names.values for each in observations))
    for port in dict.fromkeys(port for each in observations for port in each.names.extents):
        for place in range(2):
            found_at = (each.names.extents.get(port, ())[place : place + 1] for each in observations)
            numbers = {extent for extents in found_at for extent in extents if extent is not None}
            yield from _on_extent(port, place, sorted(numbers), right)


def _on_type(parameter: str, dtype: str) -> Condition:
    def same(names: NodeNames) -> bool:
        return names.types.get(parameter) == dtype

    return Condition(parameter, "", "", same, same, dtype, parameter)


def _on_name(name: str, values: Sequence[Any], right: Sequence[NodeNames], partly: bool) -> Iterator[Condition]:
    """Yield conditions on a name.

    Args:
        name: The name.
        values: Its values.
        right: The nodes that the engine computes.
        partly: Whether some nodes do not have it.
    """
    lists = [value for value in values if isinstance(value, tuple)]
    if lists:
        if all(isinstance(item, int) for value in lists for item in value):
            yield from _on_numbers(name, lists, right)
        elif len(lists) <= _MOST_VALUES:
            good = {item for each in right for item in _items(each.values.get(name, ()))}
            for item in dict.fromkeys(item for value in lists for item in value):
                if good <= {item}:
                    continue
                yield Condition(name, "", "", _forbids(name, _contains(item)), _never, item)
        return
    if any(isinstance(value, (bool, str)) for value in values):
        good = {each.values[name] for each in right if each.values.get(name, UNKNOWN) is not UNKNOWN}
        for value in values if good else ():
            if good == {value}:
                continue  # a limit would allow nothing
            same = _forbids(name, _equals(value))
            yield Condition(name, f"{name}: {written(value)}", "", same, same, value)
        if partly and name.endswith(".constant"):
            rank = f"{name.removesuffix('.constant')}.rank"
            yield Condition(rank, "", "0", _is_given(rank), _never)
        return
    numbers = sorted({value for value in values if isinstance(value, (int, float))})
    if len(numbers) < 2:
        return
    whole = all(isinstance(value, int) for value in numbers)
    if whole:
        yield from _thresholds(name, name, numbers, right, lambda names: names.values.get(name))
    allowed = [each.values[name] for each in right if name in each.values and each.values[name] is not UNKNOWN]
    usual = Counter(allowed).most_common(1)
    if usual:
        yield Condition(name, "", written(usual[0][0]), _forbids(name, _other(usual[0][0])), _never)
    for value in numbers if len(numbers) <= _MOST_VALUES and whole else ():
        same = _forbids(name, _equals(value))
        yield Condition(name, f"{name}: {written(value)}", "", same, same, value)


def _on_numbers(name: str, lists: Sequence[tuple[Any, ...]], right: Sequence[NodeNames]) -> Iterator[Condition]:
    """Yield conditions on the largest and the smallest element of a list, and on its length."""
    for function, choose in (("max", max), ("min", min)):
        numbers = sorted({choose(value) for value in lists if value})
        if len(numbers) < 2:
            continue

        def value_of(names: NodeNames, choose: Callable[..., Any] = choose) -> Any:
            found = names.values.get(name)
            return choose(_items(found)) if found is not None and found is not UNKNOWN and _items(found) else found

        side = "above" if function == "max" else "below"
        yield from _thresholds(name, f"{function}({name})", numbers, right, value_of, side)
    lengths = sorted({len(value) for value in lists})
    if len(lengths) > 1:

        def length_of(names: NodeNames) -> Any:
            found = names.values.get(name)
            return len(_items(found)) if found is not None and found is not UNKNOWN else found

        yield from _thresholds(f"len({name})", f"len({name})", lengths, right, length_of)


def _on_extent(port: str, place: int, numbers: Sequence[int], right: Sequence[NodeNames]) -> Iterator[Condition]:
    if len(numbers) < 2:
        return
    name = extent_name(port, place)

    def value_of(names: NodeNames) -> Any:
        found = names.extents.get(port)
        if found is None:
            return None if port not in names.extents else UNKNOWN
        return found[place] if len(found) > place and found[place] is not None else UNKNOWN

    for condition in _thresholds(name, name, numbers, right, value_of):
        yield Condition(
            name, condition.guard, condition.limit, condition.forbids, condition.holds, extent=(port, place)
        )


def extent_name(port: str, place: int) -> str:
    """Return the name of an extent of a port, counted from the last one."""
    return f"{port}_{place + 1}"


def _thresholds(
    name: str,
    term: str,
    numbers: Sequence[Any],
    right: Sequence[NodeNames],
    value_of: Callable[[NodeNames], Any],
    side: str = "both",
) -> Iterator[Condition]:
    """Yield conditions that a number is above or below some number; the limit is the last one that was right."""
    good = sorted({value for each in right if isinstance(value := value_of(each), (int, float))})
    for number in numbers:
        if side != "below" and (lower := [value for value in good if value < number]):

            def above(names: NodeNames, number: Any = number) -> bool:
                value = value_of(names)
                return isinstance(value, (int, float)) and value >= number

            yield Condition(
                name, f"{term}: {written(number)}..", f"..{written(lower[-1])}", _or_unknown(above, value_of), above
            )
        if side != "above" and (upper := [value for value in good if value > number]):

            def below(names: NodeNames, number: Any = number) -> bool:
                value = value_of(names)
                return isinstance(value, (int, float)) and value <= number

            yield Condition(
                name, f"{term}: ..{written(number)}", f"{written(upper[0])}..", _or_unknown(below, value_of), below
            )


def _or_unknown(
    condition: Callable[[NodeNames], bool], value_of: Callable[[NodeNames], Any]
) -> Callable[[NodeNames], bool]:
    return lambda names: condition(names) or value_of(names) is UNKNOWN


def _forbids(name: str, condition: Callable[[Any], bool]) -> Callable[[NodeNames], bool]:
    return lambda names: name in names.values and (names.values[name] is UNKNOWN or condition(names.values[name]))


def _is_given(rank: str) -> Callable[[NodeNames], bool]:
    """Return a function that tells whether an optional input is given: its rank is above 0 then, as a limit can say."""

    def given(names: NodeNames) -> bool:
        found = names.values.get(rank)
        return found is UNKNOWN or isinstance(found, int) and found > 0

    return given


def _never(names: NodeNames) -> bool:
    return False


def _equals(value: Any) -> Callable[[Any], bool]:
    return lambda found: type(found) is type(value) and found == value


def _contains(item: Any) -> Callable[[Any], bool]:
    return lambda found: item in _items(found)


def _other(value: Any) -> Callable[[Any], bool]:
    return lambda found: found != value


def _items(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def written(value: Any) -> str:
    """Return a value as it is written in ranges."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    plain = text.replace("_", "").isalnum() and not text[0].isdigit() and not RESERVED.match(text)
    return text if not isinstance(value, str) or plain else json.dumps(text, ensure_ascii=False)


def reason_of(each: Observation) -> str:
    """Return in a few words why a node is not right."""
    outcome = each.outcome
    if outcome.stage == "end":
        return f"ends the process: {outcome.reason}" if "ended with" in outcome.reason else f"hangs: {outcome.reason}"
    if outcome.stage in ("load", "run"):
        return f"{'refused' if outcome.stage == 'load' else 'fails'}: {_ENGINE.sub('', outcome.reason)}"
    return f"wrong: {outcome.broken or f'by {outcome.share:.2g} of the largest value'}"
