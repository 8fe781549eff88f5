"""Interval arithmetic of operators. An unknown end is infinite; the other end may still be known."""

from __future__ import annotations

import math
from collections.abc import Callable

from dovetail_precision.ranges.range import Range

UNKNOWN = Range(-math.inf, math.inf)
_POSITIVE = Range(0.0, math.inf)

BOUNDED = {
    "Sigmoid": Range(0.0, 1.0), "Softmax": Range(0.0, 1.0), "HardSigmoid": Range(0.0, 1.0), "Hardmax": Range(0.0, 1.0),
    "Tanh": Range(-1.0, 1.0), "Erf": Range(-1.0, 1.0), "Sin": Range(-1.0, 1.0), "Cos": Range(-1.0, 1.0),
    "Softsign": Range(-1.0, 1.0), "Sign": Range(-1.0, 1.0), "ReduceL1": _POSITIVE, "ReduceL2": _POSITIVE,
    "ReduceSumSquare": _POSITIVE, "Softplus": _POSITIVE,
}  # fmt: skip
# The result stays within the interval of the first input: data movement, means and extrema.
MOVEMENT = frozenset({
    "Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Expand", "Tile", "Gather",
    "GatherElements", "GatherND", "Split", "DepthToSpace", "SpaceToDepth", "Cast", "CastLike", "Dropout", "MaxPool",
    "ReduceMax", "ReduceMin", "ReduceMean", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "TopK", "Compress",
    "Trilu",
})  # fmt: skip
WITH_ZERO = frozenset({"AveragePool", "Trilu", "MaxPool", "Dropout"})
MERGING = frozenset({"Concat", "Max", "Min", "Where"})


def extreme(operator: str, ranges: list[Range]) -> Range:
    """Return the interval of the result of `operator`, one of `MERGING`, on values in `ranges`."""
    if operator == "Max":
        return Range(max(r.low for r in ranges), max(r.high for r in ranges))
    if operator == "Min":
        return Range(min(r.low for r in ranges), min(r.high for r in ranges))
    found = ranges[0]
    for other in ranges[1:]:
        found = found | other
    return found


def square(x: Range) -> Range:
    """Return the interval of a value times itself."""
    return Range(x.distance_from_zero**2, x.magnitude**2)


def power(x: Range, exponent: Range) -> Range:
    """Return the interval of a power with a constant exponent; unknown if the exponent is not a single number."""
    n = exponent.low
    if n != exponent.high or not math.isfinite(n):
        return UNKNOWN
    if n == 0:
        return Range(1.0, 1.0)
    if n > 0 and n % 2 == 0:
        return Range(_raised(x.distance_from_zero, n), _raised(x.magnitude, n))
    if x.low < 0:
        return UNKNOWN
    ends = (_raised(x.low, n), _raised(x.high, n))
    return Range(min(ends), max(ends))


def _raised(x: float, n: float) -> float:
    if x == 0:
        return 0.0 if n > 0 else math.inf
    try:
        return math.pow(x, n)
    except OverflowError:
        return math.inf


def _sums(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high)


def _products(a: Range, b: Range) -> Range:
    if a.low >= 0 and b.low >= 0:
        return Range(a.low * b.low, _times(a.high, b.high))
    if not (a.bounded and b.bounded):
        return UNKNOWN
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(ends), max(ends))


def _times(x: float, y: float) -> float:
    return 0.0 if x == 0 or y == 0 else x * y


def _reciprocals(x: Range) -> Range:
    if x.low <= 0 <= x.high:
        return UNKNOWN
    return Range(1 / x.high, 1 / x.low)


def _quotients(a: Range, b: Range) -> Range:
    return _products(a, _reciprocals(b))


def _clipped(x: Range, low: Range = UNKNOWN, high: Range = UNKNOWN) -> Range:
    bottom, top = max(x.low, low.low), min(x.high, high.high)
    return Range(bottom, max(bottom, top))


def _exponential(x: Range) -> Range:
    low, high = (0.0 if end < -700 else math.exp(end) if end < 700 else math.inf for end in (x.low, x.high))
    return Range(low, high)


def _magnitudes(x: Range) -> Range:
    return Range(x.distance_from_zero, x.magnitude)


ARITHMETIC: dict[str, Callable[..., Range]] = {
    "Abs": _magnitudes,
    "Add": _sums,
    "Ceil": lambda x: Range(x.low, x.high + 1),
    "Clip": _clipped,
    "Div": _quotients,
    "Exp": _exponential,
    "Floor": lambda x: Range(x.low - 1, x.high),
    "Mul": _products,
    "Neg": lambda x: Range(-x.high, -x.low),
    "Pow": power,
    "Reciprocal": _reciprocals,
    "ReduceSum": lambda x, *_: _POSITIVE if x.low >= 0 else UNKNOWN,
    "Relu": lambda x: Range(max(x.low, 0.0), max(x.high, 0.0)),
    "Sqrt": lambda x: Range(math.sqrt(max(x.low, 0.0)), math.sqrt(max(x.high, 0.0))),
    "Sub": lambda a, b: Range(a.low - b.high, a.high - b.low),
}
"""Interval functions by operator type; each takes the intervals of all inputs."""
