"""Bounded parsing of JSON and YAML: excessive nesting, numbers and aliases are errors with their line.

PyYAML composes and Python decodes recursively, and Python converts integers in quadratic time; 100 kB suffice for an
accident or an attacker to crash the process. Hence all text is decoded here, with limits far beyond legitimate files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

DEEPEST = 100
"""Maximum nesting of lists and mappings."""
MOST_DIGITS = 300
"""Maximum digits of a number; those of float64 end at 309."""

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_LONG_NUMBER = re.compile(rf"\d{{{MOST_DIGITS + 1}}}")
_NUMERIC = re.compile(r"[-+]?[0-9][0-9a-fA-FxX_.:]*")


class Malformed(ValueError):
    """Raised for malformed text.

    Args:
        problem: What is wrong, without the line.
        line: The line, from 1; 0 if unknown.
    """

    def __init__(self, problem: str, line: int = 0):
        self.problem, self.line = problem, line
        super().__init__(f"line {line}: {problem}" if line else problem)

    def at(self, name: str) -> str:
        """Return the problem with its position in the file `name`, such as `plan.json:3: ...`."""
        return f"{name}:{self.line}: {self.problem}" if self.line else f"{name}: {self.problem}"


def parse_json(text: str | bytes, *, finite: bool = False, deepest: int = DEEPEST) -> Any:
    """Decode JSON.

    Args:
        text: The document; bytes are UTF-8.
        finite: Refuse `NaN`, `Infinity` and numbers beyond float64, which other JSON readers do not support.
        deepest: Maximum nesting.

    Raises:
        Malformed: It is not JSON, nested too deeply, or has a number that is too long.
    """
    if isinstance(text, bytes):
        content = text
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Malformed("not text in UTF-8", content[: error.start].count(b"\n") + 1) from None
    _check_brackets(text, deepest)
    decode = _decode
    if finite:
        decode = _decode_finite
    elif _LONG_NUMBER.search(text):
        decode = _decode_careful
    try:
        return decode(text)
    except json.JSONDecodeError as error:
        raise Malformed(error.msg, error.lineno) from None
    except RecursionError:  # the caller is deep in the stack already
        raise Malformed("nested too deeply") from None


def _line(event: Any) -> int:
    return event.start_mark.line + 1


def yaml_events(text: str, deepest: int = DEEPEST, *, numbers: bool = False) -> Iterator[Any]:
    """Yield the events of PyYAML's parser, which does not recurse.

    Args:
        text: The document.
        deepest: Maximum nesting.
        numbers: Refuse numbers that are too long, for callers that let PyYAML construct them: base 16 and base 60 have
            no limit there. Callers that keep scalars as text check those that they convert.

    Raises:
        Malformed: It is not YAML, nested too deeply, or has a number that is too long.
    """
    import yaml

    depth = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > deepest:
                    raise Malformed("nested too deeply", _line(event))
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif numbers and isinstance(event, yaml.ScalarEvent) and not event.style and _is_long(event.value):
                raise Malformed(too_long(event.value), _line(event))
            yield event
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or ""
        # Since 6.0.4, PyYAML's scanner, which reads ahead of the events, has a limit of its own.
        message = "nested too deeply" if "nesting depth" in problem else f"not YAML: {problem}"
        raise Malformed(message, mark.line + 1 if mark else 1) from None
    except yaml.YAMLError:  # invalid characters; the reader reports no line
        raise Malformed("not a text file", 1) from None
    except (UnicodeError, RecursionError) as error:
        raise Malformed(f"not a text file: {error}", 1) from None


def too_long(number: str) -> str:
    """Return the message about a number with too many digits."""
    return f"a number of more than {MOST_DIGITS} digits: '{number[:40]}...'"


def _is_long(scalar: str) -> bool:
    return len(scalar) > MOST_DIGITS and _NUMERIC.fullmatch(scalar) is not None


def _check_brackets(text: str, deepest: int) -> None:
    if text.count("[") + text.count("{") <= deepest:
        return
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        bracket = found[0]
        if bracket in ("[", "{"):
            depth += 1
            if depth > deepest:
                raise Malformed("nested too deeply", text.count("\n", 0, found.start()) + 1)
        elif bracket in ("]", "}"):
            depth -= 1


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise Malformed(too_long(text))
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise Malformed(f"{text[:40]} is beyond float64")
    return value


def _no_number(word: str) -> None:
    raise Malformed(f"{word} is no number of JSON")


_decode: Callable[[str], Any] = json.JSONDecoder().decode
_decode_careful: Callable[[str], Any] = json.JSONDecoder(parse_int=_integer).decode
_decode_finite: Callable[[str], Any] = json.JSONDecoder(
    parse_int=_integer, parse_float=_finite, parse_constant=_no_number
).decode
