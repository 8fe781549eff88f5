"""Strategies with their options, which stand under `place:` of a backend file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.plugin.isolation import calling
from dovetail.plugin.strategy import Strategy
from dovetail.suggestions import did_you_mean

if TYPE_CHECKING:
    from dovetail.plugin.backend import Backend


_EVERYBODY = ("strategy", "min_region", "regions")


def made_strategy(found: object, backend: Backend, name: str, who: str) -> Strategy:
    """Make a strategy for a backend.

    The options of a strategy that is a dataclass are its fields; other strategies read `backend.place`, and name in
    `place_keys` what they read. Keys for the strategy that the backend names are not another one's.

    Args:
        found: What is registered, a class.
        backend: The backend, with what its file says under `place:`.
        name: Name of the strategy.
        who: The strategy with its distribution, for messages.

    Raises:
        DovetailError: The file has a key that the strategy does not read, or a value of another type, with file and
            line; or the class fails, or is no strategy.
    """
    if not (isinstance(found, type) and issubclass(found, Strategy)):
        raise DovetailError(f"{who} is no dovetail.plugin.Strategy", "derive its class from dovetail.plugin.Strategy")
    if lacking := sorted(found.__abstractmethods__):
        raise DovetailError(f"{who} has no {', '.join(lacking)}", "see docs/guides/strategy.md")
    place = backend.place if name == backend.strategy else {}
    if not dataclasses.is_dataclass(found):
        _check_keys(place, found.place_keys, backend, name)
        with calling(who):
            return found()
    fields = {field.name: field for field in dataclasses.fields(found) if field.init}
    _check_keys(place, fields, backend, name)
    for key, value in place.items():
        _check_value(fields[key], value, backend, name)
    with calling(who):
        return found(**place)


def _check_keys(place: Any, read: Any, backend: Backend, name: str) -> None:
    for key in place:
        if key not in read:
            near = did_you_mean(key, (*_EVERYBODY, *read))
            reads = f"it reads {', '.join(read)}" if read else "it reads no key of its own"
            where = _where(key, backend)
            raise DovetailError(f"{where}: strategy '{name}' does not read '{key}' under place{near}", reads)


def _check_value(field: dataclasses.Field, value: object, backend: Backend, name: str) -> None:
    """Refuse a value that is of another type than the default of its option."""
    default = field.default if field.default is not dataclasses.MISSING else None
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    wanted = (list, tuple) if isinstance(default, (list, tuple)) else type(default)
    if default is not None and (not isinstance(value, wanted) or isinstance(value, bool) != isinstance(default, bool)):
        raise DovetailError(
            f"{_where(field.name, backend)}: {field.name}: {value!r} is no option of strategy '{name}'",
            f"its default is {default!r}",
        )


def _where(key: str, backend: Backend) -> str:
    return backend.place_sources.get(key, backend.source)
