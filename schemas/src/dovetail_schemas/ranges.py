"""Ranges: the right side of a limit.

    1..7   ..2048   2..   ..(KH-1)/2   [1, 2]   [[2, 3]]   pow2   =SW   nearest   true   1

A list value is checked element by element, except against a whole list (`[[2, 3]]`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dovetail_schemas.terms import ABSENT, Env, Term, TermError, Unknown, parse_term
from dovetail_schemas.yaml_source import Items, Node, Scalar

_DASHED = re.compile(r"(\d+)\s*[-\u2013]\s*(\d+)")
_Test = Callable[[object, Env], "bool | Unknown"]


@dataclass(frozen=True, slots=True)
class ValueSet:
    """The set of allowed values.

    Attributes:
        text: The source text.
        names: The names used in its bounds.
    """

    text: str
    names: tuple[str, ...]
    _test: _Test
    _whole: bool = False

    def holds(self, value: object, env: Env) -> bool | Unknown:
        """Check whether it contains `value`; `Unknown` if a bound is unknown.

        Raises:
            TermError: A bound has no value.
        """
        if isinstance(value, tuple) and not self._whole:
            answers = [self._test(item, env) for item in value]
            if not all(answer is not False for answer in answers):
                return False
            return next((answer for answer in answers if answer is not True), True)
        return self._test(value, env)


def parse_range(node: Node) -> ValueSet:
    """Parse the range under a key.

    Raises:
        SchemaError: It has none of the forms above.
    """
    if isinstance(node, Items):
        return _parse_set(node)
    if not isinstance(node, Scalar):
        raise node.error("a range is expected: 1..7, ..2048, 2.., [1, 2], [[2, 3]], pow2, =TERM, a word or true")
    if node.is_null:
        raise node.error("a range is expected, nothing is given")
    text = node.raw.strip()
    if node.quoted:
        return _exact(text, text)
    if ".." in text:
        return _parse_interval(node, text)
    if text.startswith("="):
        end = _parse_end(node, text[1:])
        return ValueSet(text, end.names, lambda value, env: _compare(end(env), lambda other: value == other))
    if text == "pow2":
        return ValueSet(text, (), lambda value, env: isinstance(value, int) and value > 0 and value & (value - 1) == 0)
    value = node.value
    if isinstance(value, str) and (dashed := _DASHED.fullmatch(text)):
        raise node.error(f"'{text}' is no range; did you mean {dashed[1]}..{dashed[2]}?")
    if isinstance(value, str) and text[0].isdecimal():
        raise node.error(f"'{text}' is neither a number nor a range: 1..7, ..2048, 2.., [1, 2], [[2, 3]], pow2, =TERM")
    if isinstance(value, str) and not value.replace("_", "").replace("-", "").isalnum():
        raise node.error(f"'{text}' is no range: 1..7, ..2048, 2.., [1, 2], [[2, 3]], pow2, =TERM, a word or true")
    return _exact(text, value)


def _exact(text: str, wanted: object) -> ValueSet:
    return ValueSet(text, (), lambda value, env: value == wanted)


def _parse_set(node: Items) -> ValueSet:
    if not node.items:
        raise node.error("an empty list allows nothing")
    parts: list[ValueSet] = []
    for item in node.items:
        if isinstance(item, Items):
            parts.append(_whole_list(item))
        else:
            parts.append(parse_range(item))
    whole = any(part._whole for part in parts)
    if whole and not all(part._whole for part in parts):
        raise node.error("whole lists ([[2, 3]]) and single values cannot stand in one list")
    text = f"[{', '.join(part.text for part in parts)}]"
    names = tuple(sorted({name for part in parts for name in part.names}))

    def test(value: object, env: Env) -> bool | Unknown:
        answers = [part.holds(value, env) for part in parts]
        if any(answer is True for answer in answers):
            return True
        return next((answer for answer in answers if answer is not False), False)

    return ValueSet(text, names, test, whole)


def _whole_list(node: Items) -> ValueSet:
    wanted = tuple(word.value for word in node.words("list", empty=True))
    text = f"[{', '.join(map(str, wanted))}]"
    return ValueSet(text, (), lambda value, env: (value if isinstance(value, tuple) else (value,)) == wanted, True)


def _parse_interval(node: Scalar, text: str) -> ValueSet:
    low_text, _, high_text = text.partition("..")
    if ".." in high_text or high_text.startswith("."):
        raise node.error(f"'{text}' is no range: one '..' between two ends")
    low = _parse_end(node, low_text) if low_text.strip() else None
    high = _parse_end(node, high_text) if high_text.strip() else None
    if low is None and high is None:
        raise node.error("'..' has no end; leave the limit out if everything is allowed")
    if low and high and not low.names and not high.names and low({}) > high({}):
        raise node.error(f"'{text}' is empty: {low.text} is more than {high.text}")
    names = tuple(sorted({*(low.names if low else ()), *(high.names if high else ())}))

    def test(value: object, env: Env) -> bool | Unknown:
        if not isinstance(value, (int, float)):
            return False
        lower = _compare(low(env), lambda end: value >= end) if low else True
        upper = _compare(high(env), lambda end: value <= end) if high else True
        if lower is False or upper is False:
            return False
        return upper if lower is True else lower

    return ValueSet(text, names, test)


def _parse_end(node: Scalar, text: str) -> Term:
    try:
        term = parse_term(text.strip())
        if not term.names:
            term({})
    except TermError as error:
        raise node.error(str(error)) from error
    return term


def _compare(end: object, compare: Callable[[Any], bool]) -> bool | Unknown:
    """Compare with a bound: an unknown bound leaves the answer open, an absent one limits nothing."""
    if isinstance(end, Unknown):
        return end
    if end is ABSENT:
        return True
    if isinstance(end, tuple):
        raise TermError("the end of a range is a list")
    return bool(compare(end))
