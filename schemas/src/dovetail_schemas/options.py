"""Options of a backend file, and the conditions of variants on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dovetail_schemas.errors import near_miss
from dovetail_schemas.yaml_source import Entries, Node, Scalar


def parse_options(node: Node | None) -> dict[str, tuple[str, ...]]:
    """Parse the values of every option, the default first.

    Raises:
        SchemaError: An option has no values, or one that is not a word.
    """
    found: dict[str, tuple[str, ...]] = {}
    for key, value in node.entries("options") if node else ():
        found[key.raw] = tuple(word.raw for word in value.words(f"option '{key.raw}'"))
    return found


def parse_interacting(node: Node | None, declared: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Parse the groups of options of which one changes what another gains.

    Raises:
        SchemaError: A group has fewer than two options, or one that is unknown.
    """
    found = []
    for group in node.many() if node else ():
        words = group.words("interacting")
        for word in words:
            _check_name(word, word.raw, declared)
        if len({word.raw for word in words}) < 2:
            raise group.error("interacting: lists of two options and more are expected, as in [[runtime, weights]]")
        found.append(tuple(word.raw for word in words))
    return tuple(found)


def choose_options(declared: Mapping[str, tuple[str, ...]], wanted: Mapping[str, str], place: Node) -> dict[str, str]:
    """Return the value of every option: the requested one, else the first.

    Raises:
        SchemaError: An option or value is unknown; the error refers to the file as a whole.
    """
    node = place.get("options") if isinstance(place, Entries) else None
    where = node or place
    for name, value in wanted.items():
        _check(where, name, str(value), declared)
    return {name: str(wanted.get(name, values[0])) for name, values in declared.items()}


def variant_applies(node: Node, declared: Mapping[str, tuple[str, ...]], chosen: Mapping[str, str]) -> bool:
    """Check whether a variant's `when:` holds for the chosen options.

    A value is a word, a list of words, or a range of versions (`..10`, `8.6..`), compared part by part.

    Raises:
        SchemaError: An option or value is unknown.
    """
    applies = True
    for key, value in node.entries("when"):
        name = key.raw
        _check_name(key, name, declared)
        answers = [_matches(word, name, declared, chosen[name]) for word in value.words("when")]
        applies = applies and any(answers)
    return applies


def idle_options(trees: Sequence[Entries]) -> frozenset[str]:
    """Return the options whose variants only set `emit`, or the quantization of the same element types."""
    idle: set[str] = set()
    others: set[str] = set()
    known = [_elements(tree) for tree in trees]
    for entries in _variants(trees):
        named = {key.raw for key, _ in entries.require("when").entries("when")}
        changed = [
            name
            for name, kinds in _elements(entries).items()
            if not kinds or {one[name] for one in known if name in one} != {kinds}
        ]
        says_more = {key.raw for key, _ in entries} - {"when", "emit", "types"}
        (others if says_more or changed else idle).update(named)
    return frozenset(idle - others)


def unused_options(
    trees: Sequence[Entries], declared: Mapping[str, tuple[str, ...]], chosen: Mapping[str, str]
) -> frozenset[str]:
    """Return the options of variants that apply with no value of the option, because of the other choices."""
    conditions = [entries.require("when") for entries in _variants(trees)]
    named = {key.raw for condition in conditions for key, _ in condition.entries("when")}

    def applying(options: Mapping[str, str]) -> list[bool]:
        return [variant_applies(condition, declared, options) for condition in conditions]

    now = applying(chosen)
    return frozenset(
        option for option in named if all(applying({**chosen, option: value}) == now for value in declared[option])
    )


def _variants(trees: Sequence[Entries]) -> Iterator[Entries]:
    for tree in trees:
        node = tree.get("variants")
        for item in node.many() if node else ():
            yield item.entries("variants")


def _elements(entries: Entries) -> dict[str, tuple[str, ...]]:
    """Return the element types of named types that a file or a variant defines as mappings; empty for others."""
    node = entries.get("types")
    found: dict[str, tuple[str, ...]] = {}
    for key, value in node.entries("types") if node else ():
        dtype = value.get("dtype") if isinstance(value, Entries) else None
        found[key.raw] = tuple(word.raw for word in dtype.words("dtype")) if dtype else ()
    return found


def _matches(word: Scalar, name: str, declared: Mapping[str, tuple[str, ...]], chosen: str) -> bool:
    if ".." not in word.raw or word.quoted:
        _check(word, name, word.raw, declared)
        return word.raw == chosen
    low, _, high = word.raw.partition("..")
    try:
        version = _version(chosen)
        return (not low or _version(low) <= version) and (not high or version <= _version(high))
    except ValueError:
        raise word.error(f"'{word.raw}': the values of option '{name}' are no versions") from None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _check(place: Node, name: str, value: str, declared: Mapping[str, tuple[str, ...]]) -> None:
    _check_name(place, name, declared)
    if value not in declared[name]:
        known = near_miss(value, declared[name]) or f"; there are {', '.join(declared[name])}"
        raise place.error(f"unknown value '{value}' of option '{name}'{known}")


def _check_name(place: Node, name: str, declared: Mapping[str, tuple[str, ...]]) -> None:
    if name not in declared:
        raise place.error(f"unknown option '{name}'{near_miss(name, declared)}")
