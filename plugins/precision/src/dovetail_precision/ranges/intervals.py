"""Interval analysis: bounds on values from constants, integer types and bounded operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeGuard

from dovetail.ir import FlatGraph, constant_of, float_name, is_onnx

from dovetail_precision.constant_range import LARGEST_FINITE, largest_magnitude
from dovetail_precision.ranges.interval_arithmetic import (
    ARITHMETIC,
    BOUNDED,
    MERGING,
    MOVEMENT,
    UNKNOWN,
    WITH_ZERO,
    extreme,
    index_interval,
    integer_interval,
    is_integer,
    of_type,
    square,
)
from dovetail_precision.ranges.range import MASK, NARROW, Range

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


_STEPS = 16  # uses that are inspected
_MASK_FACTOR = 1e3  # a factor of `1 - x` from here on is a mask, such as -10000
_ALLOWED = frozenset(
    {"Cast", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze"}
)


def selects_mask(value: ir.Value, of: Callable[[ir.Value | None], Range]) -> bool:
    """Check whether all uses of `value` compute `(1 - value) * constant` with a large constant, as for attention masks.

    Its elements can then only be 0 and 1.

    Args:
        value: The result of a Cast from integers.
        of: Returns the interval of a constant; sentinel masks have the interval of zero.
    """
    waiting, steps = [(value, False)], 0
    while waiting:
        current, taken = waiting.pop()
        readers = current.uses()
        if not readers or current.is_graph_output():
            return False
        for reader, index in readers:
            steps += 1
            if steps > _STEPS or not is_onnx(reader):
                return False
            if taken and reader.op_type == "Mul":
                other = reader.inputs[1 - index]
                if other is None or other.const_value is None or not _is_mask_factor(other, of):
                    return False
                continue
            if reader.op_type not in _ALLOWED or reader.op_type != "Sub" and index:
                return False
            if reader.op_type == "Sub":
                one = of(reader.inputs[0])
                if index != 1 or one.low != 1 or one.high != 1:
                    return False
            waiting.append((reader.outputs[0], taken or reader.op_type == "Sub"))
    return True


def _is_mask_factor(constant: ir.Value, of: Callable[[ir.Value | None], Range]) -> bool:
    known = of(constant)
    # A constant that consists of sentinels has the interval of zero.
    return constant_of(constant).size == 1 and (known.low == known.high == 0 or abs(known.low) >= _MASK_FACTOR)


_MAX_ELEMENTS = 65536  # elements of a constant; larger ones are weights, and products with them are left to data
# Operators that pass on integers of unknown range: data movement, merging, and sums.
_PASSES_INTEGERS = MOVEMENT | MERGING | {"Abs", "Add", "Neg", "ReduceSum", "Relu", "Sub", "Sum"}


class Intervals:
    """The intervals of all values that have one: `ctx.analysis(Intervals, model)`.

    An interval is a sound bound; its ends need not be reached. Values that derive from model inputs are unbounded until
    an operator bounds them; a single end may be known, as of a square. Integers are bounded by their type (a byte) or
    by what they count (an extent). One forward walk, linear in the number of nodes.
    """

    def __init__(self, flat: FlatGraph):
        self._known: dict[int, Range] = {}
        self._constants: dict[int, Range] = {}
        self._whole: dict[int, float] = {}
        self._integers: set[int] = set()
        self._whole_numbers: set[int] = set()
        self._inputs = {id(value) for value in flat.graphs[0].inputs}
        for node in flat.nodes:
            if is_onnx(node) and node.outputs:
                self._walk(node)

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Intervals:
        """Analyze the current revision of `model`."""
        return cls(ctx.analysis(FlatGraph, model))

    def beyond(self, magnitude: float) -> dict[int, Range]:
        """Return the finite intervals of computed values that exceed `magnitude`, by the `id` of the value."""
        return {key: known for key, known in self._known.items() if magnitude < known.magnitude < math.inf}

    def is_constant(self, value: ir.Value) -> bool:
        """Check whether `value` is a weight that callers cannot override."""
        return value.const_value is not None and id(value) not in self._inputs

    def constant_magnitude(self, value: ir.Value) -> float:
        """Return the largest magnitude of a constant; NaN if it is large or contains masks or infinities."""
        self._of_constant(value)
        return self._whole.get(id(value), math.nan)

    def large_integers(self, magnitude: float) -> set[int]:
        """Return the float values, by `id`, that hold integers which may exceed `magnitude`."""
        return self._integers | {key for key in self._whole_numbers if self._known[key].magnitude > magnitude}

    @property
    def unknown_integers(self) -> set[int]:
        """The float values, by `id`, that hold integers of unknown range."""
        return self._integers

    def of(self, value: ir.Value | None) -> Range:
        """Return the interval of `value`; unknown ends are infinite."""
        if value is None:
            return UNKNOWN
        known = self._known.get(id(value))
        if known is not None:
            return known
        if self.is_constant(value):
            return self._of_constant(value)
        return of_type(value) if is_integer(value) else UNKNOWN

    def _of_constant(self, value: ir.Value) -> Range:
        known = self._constants.get(id(value))
        if known is None:
            known, whole = _of_tensor(constant_of(value))
            self._constants[id(value)] = known
            if whole:
                self._whole[id(value)] = known.magnitude
        return known

    def _walk(self, node: ir.Node) -> None:
        result = node.outputs[0]
        if node.op_type == "TopK":
            self._known[id(node.outputs[1])] = index_interval(node.inputs[0], node.attributes.get_int("axis", -1))
        if float_name(result) is not None:
            found = self._of_node(node)
            self._follow_integers(node, found)
        elif is_integer(result):
            found = integer_interval(node, self.of)
        else:
            return
        if found.low > -math.inf or found.high < math.inf:
            for value in node.outputs if node.op_type == "Split" else (result,):
                self._known[id(value)] = found

    def _of_node(self, node: ir.Node) -> Range:
        operator, inputs = node.op_type, node.inputs
        if (fixed := BOUNDED.get(operator)) is not None:
            return fixed
        if operator in MOVEMENT:
            found = self.of(inputs[0])
            if not found.bounded and is_integer(inputs[0]) and selects_mask(node.outputs[0], self.of):
                return Range(0.0, 1.0)
            return found | Range(0.0, 0.0) if operator in WITH_ZERO else found
        if operator in MERGING:
            return extreme(operator, [self.of(value) for value in (inputs[1:] if operator == "Where" else inputs)])
        if operator == "Mul" and inputs[0] is inputs[1]:
            return square(self.of(inputs[0]))
        if operator == "DequantizeLinear":
            return self._dequantized(node)
        rule = ARITHMETIC.get(operator)
        return rule(*(self.of(value) for value in inputs)) if rule else UNKNOWN

    def _dequantized(self, node: ir.Node) -> Range:
        steps = self.of(node.inputs[0])
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            steps = ARITHMETIC["Sub"](steps, self.of(node.inputs[2]))
        return ARITHMETIC["Mul"](steps, self.of(node.inputs[1]))

    def _follow_integers(self, node: ir.Node, found: Range) -> None:
        """Propagate integers of unknown range through data movement and sums; a product makes a plain float of them."""
        made = node.op_type in ("Cast", "CastLike") and is_integer(node.inputs[0])
        if found.bounded:
            if made:
                self._whole_numbers.add(id(node.outputs[0]))
        elif made:
            self._integers.add(id(node.outputs[0]))
        elif self._integers and node.op_type in _PASSES_INTEGERS:
            read = node.inputs[1:] if node.op_type == "Where" else node.inputs
            if any(id(value) in self._integers for value in read):
                self._integers.update(id(value) for value in node.outputs)


def _of_tensor(tensor: ir.TensorProtocol) -> tuple[Range, bool]:
    """Return the range of the elements, and whether it covers all: masks, infinities and NaNs are left out."""
    import numpy as np

    size = tensor.size
    if not 0 < size <= _MAX_ELEMENTS or tensor.dtype.numpy().kind not in "fiu":
        return UNKNOWN, False
    array = tensor.numpy()
    found = Range(float(array.min()), float(array.max()))
    if found.magnitude < MASK:  # false for NaN
        return found, True
    array = array.astype(np.float64)
    array = array[np.abs(array) < MASK]
    return Range(float(array.min()), float(array.max())) if array.size else Range(0.0, 0.0), False


_KEEPING = frozenset({"Add", "Concat", "ScatterElements", "ScatterND", "Sub", "Where"})


def propagate_large_constants(nodes: Sequence[ir.Node], intervals: Intervals) -> dict[int, float]:
    """Return the largest constant beyond float16 that a value may contain, by the `id` of the value.

    The result of `Where(hidden, -1e9, scores)` may contain -1e9 even if nothing was hidden in the data; cast to float16
    it would be infinite. A value that is only bounded by a constant need not reach it.

    Args:
        nodes: All nodes in topological order.
        intervals: The intervals of the values.
    """
    found: dict[int, float] = {}
    for node in nodes:
        if not is_onnx(node) or not node.outputs:
            continue
        if node.op_type in _KEEPING or node.op_type == "Mul" and _chooses(node, intervals):
            reached = max((_constant(value, intervals) for value in node.inputs if _is_float(value)), default=0.0)
        elif not found or node.op_type not in MOVEMENT:
            continue
        else:
            reached = 0.0
        if found:
            reached = max(reached, *(found.get(id(value), 0.0) for value in node.inputs))
        if reached:
            found.update((id(value), reached) for value in node.outputs if _is_float(value))
    return found


def _chooses(node: ir.Node, intervals: Intervals) -> bool:
    """Check whether one factor of a product lies in [0, 1], as a mask does."""
    known = [intervals.of(value) for value in node.inputs]
    return any(one.low == 0 and one.high == 1 for one in known)


def _is_float(value: ir.Value | None) -> TypeGuard[ir.Value]:
    return float_name(value) is not None


def _constant(value: ir.Value, intervals: Intervals) -> float:
    """Return the largest magnitude of a constant if it is beyond float16 and no sentinel; else 0."""
    if value.const_value is None or not intervals.is_constant(value):
        return 0.0
    magnitude = intervals.constant_magnitude(value)
    if math.isnan(magnitude):
        magnitude = largest_magnitude(value.const_value)
    return magnitude if magnitude > LARGEST_FINITE[NARROW] else 0.0
