"""Interval arithmetic of operators, and intervals of integers. An unknown end is infinite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail_precision.ranges.range import Range

if TYPE_CHECKING:
    import onnx_ir as ir


UNKNOWN = Range(-math.inf, math.inf)
_POSITIVE = Range(0.0, math.inf)

BOUNDED = {
    "Sigmoid": Range(0.0, 1.0), "Softmax": Range(0.0, 1.0), "HardSigmoid": Range(0.0, 1.0), "Hardmax": Range(0.0, 1.0),
    "Tanh": Range(-1.0, 1.0), "Erf": Range(-1.0, 1.0), "Sin": Range(-1.0, 1.0), "Cos": Range(-1.0, 1.0),
    "Softsign": Range(-1.0, 1.0), "Sign": Range(-1.0, 1.0), "ReduceL1": _POSITIVE, "ReduceL2": _POSITIVE,
    "ReduceSumSquare": _POSITIVE, "Softplus": _POSITIVE,
}  # fmt: skip
MOVEMENT = frozenset({
    "Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Expand", "Tile", "Gather",
    "GatherElements", "GatherND", "Split", "DepthToSpace", "SpaceToDepth", "Cast", "CastLike", "Dropout", "MaxPool",
    "ReduceMax", "ReduceMin", "ReduceMean", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "TopK", "Compress",
    "Trilu",
})  # fmt: skip
"""Operators whose result stays within the interval of the first input: data movement, means and extrema."""

WITH_ZERO = frozenset({"AveragePool", "Trilu", "MaxPool", "Dropout"})
MERGING = frozenset({"Concat", "Max", "Min", "Where"})
"""Operators whose result consists of elements of several inputs."""


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


_WIDE = 32  # types of this width and more count as unbounded
_KEPT = frozenset({"Abs", "Add", "Clip", "Mul", "Neg", "Relu", "Sub"})
_PRODUCTS = {"ConvInteger": 1, "MatMulInteger": 0}


def is_integer(value: ir.Value | None) -> bool:
    """Check whether `value` has an integer or boolean type."""
    dtype = value.dtype if value is not None else None
    return dtype is not None and (dtype.is_integer() or dtype.name == "BOOL")


def of_type(value: ir.Value) -> Range:
    """Return the range of the element type of an integer value."""
    dtype = value.dtype
    assert dtype is not None
    if dtype.name == "BOOL":
        return Range(0.0, 1.0)
    if dtype.bitwidth >= _WIDE:
        return UNKNOWN
    if dtype.name.startswith("UINT"):
        return Range(0.0, 2.0**dtype.bitwidth - 1)
    return Range(-(2.0 ** (dtype.bitwidth - 1)), 2.0 ** (dtype.bitwidth - 1) - 1)


def integer_interval(node: ir.Node, of: Callable[[ir.Value | None], Range]) -> Range:
    """Return the interval of the first output of `node`, an integer.

    Args:
        node: The node.
        of: Returns the interval of an input.
    """
    result = node.outputs[0]
    found = _computed(node, of)
    typed = of_type(result)
    if not typed.bounded:
        return found
    # Overflow wraps around, so the result may be anywhere in the type.
    return found if typed.low <= found.low and found.high <= typed.high else typed


def _computed(node: ir.Node, of: Callable[[ir.Value | None], Range]) -> Range:
    operator, inputs = node.op_type, node.inputs
    if operator == "Shape":
        return _largest_extent(inputs[0])
    if operator in ("ArgMax", "ArgMin"):
        return index_interval(inputs[0], node.attributes.get_int("axis", 0))
    if operator == "Size":
        return _elements(inputs[0])
    if operator in _PRODUCTS:
        return _product(node, of)
    if operator in MOVEMENT and operator != "ReduceMean":
        return of(inputs[0])
    if operator in MERGING:
        merged = [of(value) for value in (inputs[1:] if operator == "Where" else inputs)]
        return extreme(operator, merged)
    if operator in _KEPT and all(value is None or is_integer(value) for value in inputs):
        return ARITHMETIC[operator](*map(of, inputs))
    return UNKNOWN


def _largest_extent(value: ir.Value | None) -> Range:
    shape = value.shape if value is not None else None
    if shape is None or not shape.is_static():
        return Range(0.0, math.inf)
    return Range(0.0, float(max(shape.numpy(), default=0)))


def _elements(value: ir.Value | None) -> Range:
    shape = value.shape if value is not None else None
    if shape is None or not shape.is_static():
        return Range(0.0, math.inf)
    number = float(math.prod(shape.numpy()))
    return Range(number, number)


def index_interval(value: ir.Value | None, axis: int) -> Range:
    """Return the interval of indices along an axis of `value`."""
    return Range(0.0, max(_extent(value, axis) - 1, 0.0))


def _extent(value: ir.Value | None, axis: int) -> float:
    shape = value.shape if value is not None else None
    if shape is None or not -len(shape) <= axis < len(shape):
        return math.inf
    extent = shape[axis]
    return float(extent) if isinstance(extent, int) else math.inf


def _product(node: ir.Node, of: Callable[[ir.Value | None], Range]) -> Range:
    """Return the interval of an 8-bit product: depth of the weights times the largest products without zero points."""
    weights = node.inputs[1]
    shape = weights.shape if weights is not None else None
    if shape is None or not shape.is_static() or len(shape) < 2:
        return UNKNOWN
    extents = shape.numpy()
    depth = math.prod(extents[1:]) if _PRODUCTS[node.op_type] else extents[-2]
    reached = float(depth)
    for value, zero in zip(node.inputs[:2], (*node.inputs[2:4], None, None), strict=False):
        known = of(value)
        if zero is not None:
            known = ARITHMETIC["Sub"](known, of(zero))
        reached *= known.magnitude
    return Range(-reached, reached)
