"""What ranges say against computing in a narrow type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_precision.fits import LARGEST
from dovetail_precision.ranges.measure import measured_range

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.ranges.intervals import Intervals
    from dovetail_precision.variable import Variable

__all__ = ["overflow"]

# bfloat16 has the range of float32. How deep its sums go is for policies: they are added up in float32.
_NARROW = "float16"


def overflow(variable: Variable, kind: str, intervals: Intervals) -> str:
    """Which value of `variable` leaves float type `kind`, and how far; empty if none is known to.

    What was measured is the truth where there is data; without, an interval says what may be reached.
    """
    if kind != _NARROW or variable.policy in ("recurse", "keep"):
        return ""
    end = f"{kind} ends at {LARGEST[kind]:.0f}"
    for what, ports in (("output", variable.outputs), ("input", variable.inputs)):
        for _, value in ports:
            if (reach := _reach(value, intervals)) and reach[0] > LARGEST[kind]:
                return f"its {what} '{value.name}' {reach[1]} {reach[0]:.4g}, and {end}"
    for _, value in variable.outputs:
        known = measured_range(value)
        if known is not None and known.accumulated is not None and known.accumulated > LARGEST[kind]:
            return f"adding up its output '{value.name}' may reach {known.accumulated:.4g} on the data, and {end}"
    return ""


def _reach(value: ir.Value, intervals: Intervals) -> tuple[float, str] | None:
    known = measured_range(value)
    if known is not None:
        return known.magnitude, "reaches on the data"
    interval = intervals.get(value)
    return None if interval is None else (interval.magnitude, "may reach, by its constants,")
