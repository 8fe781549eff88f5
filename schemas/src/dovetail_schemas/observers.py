"""Observers in backend files: `observer: percentile`, or `observer: {name: percentile, percentile: 99.9}`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.plugin import DovetailError, ObserverChoice

from dovetail_schemas.errors import near_miss
from dovetail_schemas.yaml_source import Entries, Node, Scalar

if TYPE_CHECKING:
    from dovetail.plugin import Observer
    from dovetail.plugin.registry import Table


def parse_observer(node: Node | None) -> ObserverChoice:
    """What stands under `observer:` of a type; the default observer if nothing does.

    Raises:
        SchemaError: There is no name, or an option that is not one number, word or truth value.
    """
    if node is None:
        return ObserverChoice()
    if not isinstance(node, Entries):
        return ObserverChoice(node.text("observer"), (), node.where)
    name = node.require("name").text("observer")
    options = []
    for key, value in node:
        if key.raw == "name":
            continue
        if not isinstance(value, Scalar) or value.is_null:
            raise value.error(f"option '{key.raw}' of observer '{name}': one number or word is expected")
        options.append((key.raw, value.value))
    return ObserverChoice(name, tuple(options), node.where)


def resolve_observer(choice: ObserverChoice, table: Table) -> Callable[..., Observer]:
    """The registered observer, which takes the options of a choice: the keywords behind the format.

    Args:
        choice: Name and options.
        table: The registered observers.

    Raises:
        DovetailError: Nobody registered this name, the observer has no such option, or a value has another type than
            the default of its option. The message begins with file and line.
    """
    where = f"{choice.source}: " if choice.source else ""
    try:
        found = table[choice.name]
    except DovetailError as error:
        raise DovetailError(f"{where}{error.message}", error.hint) from None
    known = _options(found)
    if known is None:
        return found
    for key, value in choice.options:
        if key not in known:
            problem = f"{where}{table.title(choice.name)} has no option '{key}'{near_miss(key, known)}"
            raise DovetailError(problem, f"its options: {', '.join(known) or 'none'}")
        if not _fits(value, known[key]):
            problem = f"{where}{key}: {value!r} is no option of {table.title(choice.name)}"
            raise DovetailError(problem, f"its default is {known[key]!r}")
    return found


def _options(made: Callable[..., Observer]) -> dict[str, object] | None:
    """The keywords behind the format with their defaults, None for one without; None if it takes any keyword."""
    keywords = list(inspect.signature(made).parameters.values())[1:]
    if any(one.kind is one.VAR_KEYWORD for one in keywords):
        return None
    return {one.name: None if one.default is one.empty else one.default for one in keywords}


def _fits(value: object, default: object) -> bool:
    if default is None or type(value) is type(default):
        return True
    return type(default) is float and type(value) is int
