"""Interval analysis: how far values can reach that constants and bounded operators confine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.ir.parts import Parts
from dovetail.ir.types import float_name

from dovetail_precision.ranges.range import MASK, Range

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["Intervals"]

_UNKNOWN = Range(-math.inf, math.inf)
_LOOKED_AT = 65536  # elements of a constant; larger ones are weights, whose products are left to data

_FIXED = {
    "Sigmoid": (0, 1), "Softmax": (0, 1), "HardSigmoid": (0, 1), "Hardmax": (0, 1), "Tanh": (-1, 1), "Erf": (-1, 1),
    "Sin": (-1, 1), "Cos": (-1, 1), "Softsign": (-1, 1), "Sign": (-1, 1),
}  # fmt: skip
# What computes nothing new: values of the first input, and of others that are concatenated or chosen between.
_MOVED = frozenset({
    "Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Expand", "Tile", "Gather",
    "GatherElements", "GatherND", "Split", "DepthToSpace", "SpaceToDepth", "Cast", "Dropout", "MaxPool", "ReduceMax",
    "ReduceMin", "ReduceMean", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "TopK", "Compress", "Trilu",
})  # fmt: skip
_WITH_ZERO = frozenset({"AveragePool", "Trilu", "MaxPool", "Dropout"})
_MERGED = frozenset({"Concat", "Max", "Min", "Where"})


class Intervals:
    """The intervals of all float values that have one: `ctx.analysis(Intervals, model)`.

    An interval is an upper bound: nothing says that its ends are reached. Values that come from inputs of the model
    have none until something confines them. One walk; a node's work does not depend on the size of the model.
    """

    def __init__(self, parts: Parts):
        self._known: dict[int, Range] = {}
        self._constants: dict[int, Range] = {}
        self._whole: dict[int, float] = {}
        self._inputs = {id(value) for value in parts.graphs[0].inputs}
        for node in parts.nodes:
            if node.domain in ("", "ai.onnx") and node.outputs and float_name(node.outputs[0]) is not None:
                found = self._of_node(node)
                if found is not None and found.bounded:
                    self._known[id(node.outputs[0])] = found

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Intervals:
        """The intervals of `model` as it is now."""
        return cls(ctx.analysis(Parts, model))

    def beyond(self, magnitude: float) -> dict[int, Range]:
        """The intervals of computed values that reach beyond `magnitude`, by the `id` of the value."""
        return {key: known for key, known in self._known.items() if known.magnitude > magnitude}

    def constant_magnitude(self, value: ir.Value) -> float:
        """The largest magnitude of a small constant; NaN for a large one, and for one with masks or infinities."""
        self._of_constant(value)
        return self._whole.get(id(value), math.nan)

    def _of(self, value: ir.Value | None) -> Range:
        if value is None:
            return _UNKNOWN
        known = self._known.get(id(value))
        if known is None:
            constant = value.const_value is not None and id(value) not in self._inputs
            return self._of_constant(value) if constant else _UNKNOWN
        return known

    def _of_constant(self, value: ir.Value) -> Range:
        known = self._constants.get(id(value))
        if known is None:
            known, whole = _of_tensor(value.const_value)
            self._constants[id(value)] = known
            if whole:
                self._whole[id(value)] = known.magnitude
        return known

    def _of_node(self, node: ir.Node) -> Range | None:
        operator, inputs = node.op_type, node.inputs
        if (fixed := _FIXED.get(operator)) is not None:
            return Range(*map(float, fixed))
        if operator in _MOVED:
            if float_name(inputs[0]) is None:
                return None
            found = self._of(inputs[0])
            return found | Range(0.0, 0.0) if operator in _WITH_ZERO else found
        if operator in _MERGED:
            merged = [self._of(value) for value in inputs if float_name(value) is not None]
            return _extreme(operator, merged) if merged else None
        rule = _ARITHMETIC.get(operator)
        return rule(*(self._of(value) for value in inputs)) if rule else None


def _of_tensor(tensor: ir.TensorProtocol) -> tuple[Range, bool]:
    """The range of its elements, and whether all of them are in it: masks, infinities and NaNs are not."""
    import numpy as np

    size = tensor.size
    if not 0 < size <= _LOOKED_AT or tensor.dtype.numpy().kind not in "fiu":
        return _UNKNOWN, False
    array = tensor.numpy()
    found = Range(float(array.min()), float(array.max()))
    if found.magnitude < MASK:  # a NaN compares as false
        return found, True
    array = array.astype(np.float64)
    array = array[np.abs(array) < MASK]
    return Range(float(array.min()), float(array.max())) if array.size else Range(0.0, 0.0), False


def _extreme(operator: str, ranges: list[Range]) -> Range:
    if operator == "Max":
        return Range(max(r.low for r in ranges), max(r.high for r in ranges))
    if operator == "Min":
        return Range(min(r.low for r in ranges), min(r.high for r in ranges))
    found = ranges[0]
    for other in ranges[1:]:
        found = found | other
    return found


def _products(a: Range, b: Range) -> Range:
    if not (a.bounded and b.bounded):
        return _UNKNOWN
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(ends), max(ends))


def _quotients(a: Range, b: Range) -> Range:
    if b.low <= 0 <= b.high:
        return _UNKNOWN
    return _products(a, Range(1 / b.high, 1 / b.low))


def _clipped(x: Range, low: Range = _UNKNOWN, high: Range = _UNKNOWN) -> Range:
    bottom, top = max(x.low, low.low), min(x.high, high.high)
    return Range(bottom, max(bottom, top))


def _magnitudes(x: Range) -> Range:
    return Range(max(x.low, -x.high, 0.0), x.magnitude)


_ARITHMETIC: dict[str, Callable[..., Range]] = {
    "Abs": _magnitudes,
    "Add": lambda a, b: Range(a.low + b.low, a.high + b.high),
    "Ceil": lambda x: Range(x.low, x.high + 1),
    "Clip": _clipped,
    "Div": _quotients,
    "Exp": lambda x: Range(0.0, math.exp(x.high) if x.high < 700 else math.inf),
    "Floor": lambda x: Range(x.low - 1, x.high),
    "Mul": _products,
    "Neg": lambda x: Range(-x.high, -x.low),
    "Relu": lambda x: Range(max(x.low, 0.0), max(x.high, 0.0)),
    "Sqrt": lambda x: Range(0.0, math.sqrt(max(x.high, 0.0))) if x.bounded else _UNKNOWN,
    "Sub": lambda a, b: Range(a.low - b.high, a.high - b.low),
}
