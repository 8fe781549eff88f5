"""Text form of pass options: parsed according to the types of the dataclass fields, and printed back."""

from __future__ import annotations

import functools
import json
import re
import types
import typing
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, Union

from dovetail.errors import UsageError
from dovetail.text import did_you_mean, plain_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.plugin.pass_ import Pass


WORD = re.compile(r"[^\s{}()\[\],=\"]+")


class Word(NamedTuple):
    """A scalar in source form; a quoted one is always a string."""

    text: str
    quoted: bool = False


Value: TypeAlias = "Word | list[Value]"


def build(cls: type[Pass], options: Mapping[str, Value]) -> Pass:
    """Create a pass from parsed options.

    Raises:
        UsageError: An option is unknown, missing, or of the wrong type.
    """
    known = {item.name: item for item in fields(cls) if item.init}
    hints = _hints(cls)
    values = {}
    for key, value in options.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UsageError(
                f"pass {cls.name!r} has no option {key!r}{did_you_mean(name, known)}",
                f"its options: {', '.join(known) or 'none'}",
            )
        try:
            values[name] = _convert(value, hints.get(name, Any))
        except ValueError as error:
            raise UsageError(f"option {key!r} of pass {cls.name!r}: {error}") from None
    for name, item in known.items():
        if name not in values and item.default is MISSING and item.default_factory is MISSING:
            raise UsageError(f"pass {cls.name!r} needs option {name!r}")
    try:
        return cls(**values)
    except ValueError as error:
        raise UsageError(f"pass {cls.name!r}: {error}") from error


def print_options(pass_: Pass) -> str:
    """Return the options that differ from their defaults, in braces; empty if none does."""
    parts = []
    for item in fields(pass_):
        value = getattr(pass_, item.name)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        if item.init and (default is MISSING or value != default or type(value) is not type(default)):
            parts.append(f"{item.name}={_print(value, _hints(type(pass_)).get(item.name, Any))}")
    return f"{{{','.join(parts)}}}" if parts else ""


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError:  # a type imported for type checking only: values are then parsed by their form
        return {}


def _convert(value: Value, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(value, typing.get_args(hint))
    if origin is tuple or hint is tuple:
        return _convert_tuple(value if isinstance(value, list) else [value], typing.get_args(hint) or (Any, ...))
    if hint is Any or hint is object:
        return _by_looks(value)
    if isinstance(value, list):
        raise ValueError("a list is not allowed here")
    return _convert_word(value, hint)


def _convert_tuple(items: list[Value], hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(hints) == 2 and hints[1] is ...:
        return tuple(_convert(item, hints[0]) for item in items)
    if len(items) != len(hints):
        raise ValueError(f"{len(hints)} values are expected, {len(items)} given")
    return tuple(_convert(item, hint) for item, hint in zip(items, hints))


def _convert_union(value: Value, hints: tuple[Any, ...]) -> Any:
    wanted = [hint for hint in hints if hint is not types.NoneType]
    if len(wanted) == 1:
        is_none = isinstance(value, Word) and not value.quoted and value.text == "none"
        return None if is_none else _convert(value, wanted[0])
    # Try str last: it accepts any word.
    for hint in sorted(hints, key=lambda hint: hint is str):
        try:
            return _convert(value, hint)
        except ValueError:
            continue
    raise ValueError(f"{_show(value)} fits none of {', '.join(map(_type_name, hints))}")


def _convert_word(word: Word, hint: Any) -> Any:
    if hint is str:
        return word.text
    if hint is Path:
        return Path(word.text)
    if typing.get_origin(hint) is Literal:
        for choice in typing.get_args(hint):
            if word.text == str(choice):
                return choice
        choices = [str(choice) for choice in typing.get_args(hint)]
        raise ValueError(f"{_show(word)} is not one of {', '.join(choices)}{did_you_mean(word.text, choices)}")
    found = _by_looks(word)
    if hint is float and type(found) is int:
        return float(found)
    if hint in (int, float, bool, types.NoneType) and type(found) is hint:
        return found
    raise ValueError(f"{_show(word)} is not of type {_type_name(hint)}")


def _by_looks(value: Value) -> Any:
    if isinstance(value, list):
        return tuple(_by_looks(item) for item in value)
    return value.text if value.quoted else plain_value(value.text)


def _print(value: Any, hint: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, Path)):
        text = str(value)
        plain = WORD.fullmatch(text) and plain_value(text) is text
        return text if plain else json.dumps(text, ensure_ascii=False)
    if isinstance(value, (tuple, list)):
        # A single value of a tuple field needs no brackets: the parser knows the field's type.
        if len(value) == 1 and _is_tuple(hint) and not isinstance(value[0], (tuple, list)) and value[0] is not None:
            return _print(value[0], Any)
        return f"[{','.join(_print(item, Any) for item in value)}]"
    raise TypeError(f"a pass option cannot hold {type(value).__name__}: {value!r}")


def _is_tuple(hint: Any) -> bool:
    members = [member for member in typing.get_args(hint) if member is not types.NoneType]
    if typing.get_origin(hint) in (Union, types.UnionType):
        return len(members) == 1 and _is_tuple(members[0])
    return hint is tuple or typing.get_origin(hint) is tuple


def _show(value: Value) -> str:
    return "[" + ",".join(map(_show, value)) + "]" if isinstance(value, list) else repr(value.text)


def _type_name(hint: Any) -> str:
    return "none" if hint is types.NoneType else getattr(hint, "__name__", str(hint))
