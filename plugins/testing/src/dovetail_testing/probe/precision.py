"""How exactly an engine computes, and which nodes are right by that."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_testing.probe.observing import Outcome


TOLERANCES = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2, "int8": 0.1}
"""The largest difference of a right result by the type of its computation, of the largest value."""

_NARROW = {
    "float16": 4e-3, "bfloat16": 3e-2, "float8_e4m3fn": 0.13, "float8_e4m3fnuz": 0.13, "float8_e5m2": 0.26,
    "float8_e5m2fnuz": 0.26, "float4_e2m1fn": 0.6,
}  # fmt: skip
"""The same by the type of the result: one step of it, and half a step more where it is very narrow."""

_BITS = (("float32", 15.0), ("float16", 9.0), ("bfloat16", 6.0))
_MOST_BITS = 53
_ROUNDED = 0.05  # of the largest value


def bits_of(outcome: Outcome) -> float:
    """Return to how many bits a result is right, relative to the largest value."""
    return _MOST_BITS if outcome.exact or not outcome.share else -math.log2(outcome.share)


def computed_in(outcomes: Iterable[Outcome]) -> str:
    """Return the precision in which an engine computes float32, by the results that are rounded.

    Results that are further off than any rounding are wrong, and a few others are, too; so the upper half counts.
    """
    found = sorted(
        bits_of(each) for each in outcomes
        if each.stage == "done" and not each.broken and not each.exact and each.share < _ROUNDED
        and "float32" in each.types
    )  # fmt: skip
    middle = found[len(found) * 6 // 10] if found else _MOST_BITS
    return next((name for name, bits in _BITS if middle >= bits), "int8")


def is_right(outcome: Outcome, precision: str) -> bool:
    """Return whether a node ran and is right.

    Args:
        outcome: How it went.
        precision: The precision in which the engine computes float32.
    """
    if outcome.stage != "done" or outcome.broken:
        return False
    return outcome.exact or outcome.share <= tolerance(outcome.types, precision)


def tolerance(types: Iterable[str], precision: str) -> float:
    """Return the largest difference of right results of some types."""
    return max((TOLERANCES[precision], *(_NARROW.get(name, 0.0) for name in types)))
