"""Overflow analysis: the values that leave the range of float16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph

from dovetail_precision.constant_range import LARGEST_FINITE
from dovetail_precision.ranges.intervals import Intervals, propagate_large_constants
from dovetail_precision.ranges.measure import measured_ranges
from dovetail_precision.ranges.range import NARROW

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_precision.problem import FormatVariable


_UNKNOWN = "holds integers of unknown range"
_END = f"beyond the {LARGEST_FINITE[NARROW]:.0f} of {NARROW}"


# Safety factors on measured magnitudes.
_SAFETY_FACTOR = 2.0
_INTEGER_SAFETY_FACTOR = 8.0
_SUBNORMAL = 2.0**-14  # below, float16 is subnormal and loses precision


class OverflowAnalysis:
    """The values that leave float16: `ctx.analysis(OverflowAnalysis, model)`.

    With data, measured magnitudes count, times a safety factor for other data. Accumulators of integers get a larger
    factor: similar inputs can have much larger sums. Without data, intervals count.

    Attributes:
        intervals: The intervals of the model.
    """

    def __init__(self, intervals: Intervals, nodes: Sequence[ir.Node], model: Model):
        self.intervals = intervals
        measured, end = measured_ranges(model), LARGEST_FINITE[NARROW]
        self._measured = measured
        held = propagate_large_constants(nodes, intervals)
        self._wide = {key: f"may hold a constant of {magnitude:.4g}" for key, magnitude in held.items()}
        self._wide |= {
            key: f"may reach {interval.magnitude:.4g} by its constants"
            for key, interval in intervals.beyond(end).items()
            if key not in measured
        }
        self._wide |= {key: _UNKNOWN for key in intervals.unknown_integers if key not in measured}
        self._sums: dict[int, float] = {}
        uncertain = intervals.large_integers(end)
        for key, (_, known) in measured.items():
            if known.magnitude * (_INTEGER_SAFETY_FACTOR if key in uncertain else _SAFETY_FACTOR) > end:
                self._wide[key] = f"reaches {known.magnitude:.4g} on the data"
            elif 0 < known.magnitude < _SUBNORMAL:
                self._wide[key] = f"reaches only {known.magnitude:.4g} on the data, where {NARROW} is subnormal"
            if known.accumulated is not None and known.accumulated > end:
                self._sums[key] = known.accumulated

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> OverflowAnalysis:
        """Analyze the current revision of `model`."""
        return cls(ctx.analysis(Intervals, model), ctx.analysis(FlatGraph, model).nodes, model)

    def knows(self, value: ir.Value) -> bool:
        """Check whether the range of `value` is known from constants or data, or known to leave float16."""
        key = id(value)
        return key in self._measured or key in self._wide or self.intervals.of(value).bounded

    def overflow(self, variable: FormatVariable) -> str:
        """Return which value of `variable` leaves float16, and its magnitude; empty if none is known to."""
        if not (self._wide or self._sums) or variable.policy == "keep":
            return ""
        for what, ports in (("output", variable.outputs), ("input", variable.inputs)):
            for _, value in ports:
                if id(value.source) in self._wide:
                    said = self._wide[id(value.source)]
                    return f"its {what} '{value.name}' {said}{'' if NARROW in said else f', {_END}'}"
        for _, value in variable.outputs:
            if id(value.source) in self._sums:
                reached = self._sums[id(value.source)]
                return f"partial sums of its output '{value.name}' may reach {reached:.4g} on the data, {_END}"
        return ""
