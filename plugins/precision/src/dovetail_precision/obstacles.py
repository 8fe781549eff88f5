"""Reasons against a low type: constants out of range, overflow, and conditioning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.formats import Format

from dovetail_precision.constant_range import magnitude_fits, misfit
from dovetail_precision.problem import Reasons
from dovetail_precision.ranges.range import NARROW

if TYPE_CHECKING:
    from dovetail_precision.conditioning.conditions import Conditions
    from dovetail_precision.ranges.overflow import OverflowAnalysis
    from dovetail_precision.variable import Value, Variable


_NARROW = Format.of(NARROW)


class Obstacles(Reasons):
    """Collects the reasons of one model, cached per variable. Only float16 has a range narrower than float32's."""

    def __init__(self, overflow: OverflowAnalysis, conditions: Conditions):
        self._overflow = overflow
        self._conditions = conditions
        self._known: dict[int, str] = {}
        self._misfits: dict[int, str] = {}

    def of_values(self, variable: Variable, format_: Format) -> str:
        """Return which value of `variable` leaves the range of `format_`; empty if none does."""
        if format_ is not _NARROW:
            return ""
        known = self._known.get(id(variable))
        if known is None:
            known = self._known[id(variable)] = self._constants(variable) or self._overflow.overflow(variable)
        return known

    def of_conditioning(self, variable: Variable, format_: Format) -> str:
        """Return the conditioning problem of `format_`; empty for pinned nodes and `--low`, which take precedence."""
        if variable.policy in ("keep", "pinned") or variable.override and variable.policy == "lower":
            return ""
        return self.warning(variable, format_)

    def warning(self, variable: Variable, format_: Format) -> str:
        """Return the conditioning problem of `format_` at `variable`, whatever the user asked for; empty if none."""
        return self._conditions.against(variable.node, format_.element)

    def _constants(self, variable: Variable) -> str:
        for _, value in variable.inputs:
            if value.constant:
                known = self._misfits.get(id(value))
                if known is None:
                    known = self._misfits[id(value)] = self._misfit(value)
                if known:
                    return f"its constant '{value.name}' {known}"
        return ""

    def _misfit(self, value: Value) -> str:
        if magnitude_fits(self._overflow.intervals.constant_magnitude(value.source), NARROW):
            return ""
        return misfit(value.source.const_value, NARROW)
