"""Conditions on nodes that limits of backend files can say: on types, names and extents."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail_testing.probe.observing import UNKNOWN, NodeNames, Observation

RESERVED = re.compile(r"^(true|false|null|yes|no|on|off|~)$", re.IGNORECASE)
"""Texts that mean something else in YAML without quotes."""

_MOST_VALUES = 40  # of a name, for lists of allowed values


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


def conditions_on(observations: Sequence[Observation], types: Mapping[str, Sequence[str]]) -> Iterator[Condition]:
    """Yield conditions on types, names and extents that some of the nodes meet and others do not.

    Args:
        observations: The nodes.
        types: The element types that are right in some of them, by type parameter.
    """
    for parameter, allowed in types.items():
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
