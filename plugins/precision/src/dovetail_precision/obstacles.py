"""Reasons against a low type: constants out of range, overflow, and conditioning."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail_precision.constant_range import magnitude_fits, misfit
from dovetail_precision.ranges.range import NARROW

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.conditioning.conditions import Conditions
    from dovetail_precision.ranges.overflow import OverflowAnalysis
    from dovetail_precision.variable import Variable

__all__ = ["Obstacles"]


class Obstacles:
    """Collects the reasons of one model, cached per variable. Only float16 has a range narrower than float32's."""

    def __init__(self, overflow: OverflowAnalysis, conditions: Conditions, is_constant: Callable[[ir.Value], bool]):
        self._overflow = overflow
        self._conditions = conditions
        self._is_constant = is_constant
        self._known: dict[int, str] = {}
        self._misfits: dict[int, str] = {}

    def __call__(self, variable: Variable, name: str) -> str:
        """Return the reason against float type `name` for `variable`, in one clause; empty if there is none."""
        return self.of_values(variable, name) or self.of_conditioning(variable, name)

    def of_values(self, variable: Variable, name: str) -> str:
        """Return which value of `variable` leaves the range of `name`; empty if none does."""
        if name != NARROW:
            return ""
        known = self._known.get(id(variable))
        if known is None:
            known = self._known[id(variable)] = self._constants(variable) or self._overflow.overflow(variable)
        return known

    def of_conditioning(self, variable: Variable, name: str) -> str:
        """Return the conditioning problem of `name`; empty for pinned nodes and for `--low`, which take precedence."""
        if variable.policy in ("keep", "pinned") or variable.override and variable.policy == "lower":
            return ""
        return self._conditions.against(variable.node, name)

    def _constants(self, variable: Variable) -> str:
        for _, value in variable.inputs:
            if self._is_constant(value):
                known = self._misfits.get(id(value))
                if known is None:
                    known = self._misfits[id(value)] = self._misfit(value)
                if known:
                    return f"its constant '{value.name}' {known}"
        return ""

    def _misfit(self, value: ir.Value) -> str:
        if magnitude_fits(self._overflow.intervals.constant_magnitude(value), NARROW):
            return ""
        return misfit(value.const_value, NARROW)
