"""Recurrent outputs: state that a model returns and takes as an input of the next step (KV caches, RNN states).

ONNX does not say which output feeds which input, so pairs are found by name. Two names match if they differ only in
the word that tells the sides apart: `past`, `old`, `prev`, `in`, ... for the input, `present`, `new`, `next`, `out`,
... for the output. So `past_key_values.0.key` matches `present.0.key`, `state` matches `new_state`, `h_in` matches
`h_out`, and `h0` matches `hn`. Element types and ranks must be equal, and at most one axis may differ: a cache grows
along it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dovetail.ir.required import name_of
from dovetail.ir.types import float_name

if TYPE_CHECKING:
    import onnx_ir as ir


_BEFORE = frozenset({"past", "old", "prev", "previous", "last", "in", "input", "init", "initial"})
_AFTER = frozenset({"present", "new", "next", "updated", "out", "output"})
_ALONE = frozenset({("past", "present"), ("old", "new"), ("prev", "next"), ("previous", "next")})
_INITIAL_TO_FINAL = {"h0": "hn", "c0": "cn", "h_0": "h_n", "c_0": "c_n"}


def find_recurrent_io(graph: ir.Graph) -> list[tuple[ir.Value, ir.Value]]:
    """Return pairs of input and output of `graph` that carry one state; ambiguous names are skipped."""
    by_rest: dict[tuple[str, ...], list[ir.Value]] = {}
    by_name: dict[str, list[ir.Value]] = {}
    for output in graph.outputs:
        if output.name:
            by_rest.setdefault(_split_name(output.name, _AFTER)[1], []).append(output)
            by_name.setdefault(output.name, []).append(output)
    found: list[tuple[ir.Value, ir.Value]] = []
    taken: dict[int, int] = {}
    for value in graph.inputs:
        name = value.name or ""
        candidates = [
            *by_rest.get(_split_name(name, _BEFORE)[1], ()),
            *by_name.get(_INITIAL_TO_FINAL.get(name, ""), ()),
        ]
        partners = [other for other in candidates if _names_match(name, name_of(other)) and _types_match(value, other)]
        if len(partners) == 1 and float_name(value) is not None and not value.is_initializer():
            found.append((value, partners[0]))
            taken[id(partners[0])] = taken.get(id(partners[0]), 0) + 1
    return [(value, other) for value, other in found if taken[id(other)] == 1]


def _names_match(given: str, result: str) -> bool:
    if _INITIAL_TO_FINAL.get(given) == result:
        return True
    (before, rest), (after, other) = _split_name(given, _BEFORE), _split_name(result, _AFTER)
    if rest != other or before is None and after is None:
        return False
    return bool(rest) or (before, after) in _ALONE


def _split_name(name: str, marks: frozenset[str]) -> tuple[str | None, tuple[str, ...]]:
    """Split `name` into the first word that marks its side (None if there is none) and the other words."""
    text = re.sub(r"(?<=past|sent)_key_values", "", name.lower())
    words = [word for word in re.split(r"[^a-z0-9]+", text) if word]
    mark = next((word for word in words if word in marks), None)
    if mark is not None:
        words.remove(mark)
    return mark, tuple(words)


def _types_match(value: ir.Value, other: ir.Value) -> bool:
    if value is other or value.dtype is None or value.dtype != other.dtype:
        return False
    if value.shape is None or other.shape is None:
        return True
    if len(value.shape) != len(other.shape):
        return False
    return sum(str(ours) != str(theirs) for ours, theirs in zip(value.shape, other.shape, strict=True)) <= 1
