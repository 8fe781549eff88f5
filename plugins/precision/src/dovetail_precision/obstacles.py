"""What keeps a variable out of a narrower type: constants that it reads, and how far its values reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail_precision.fits import misfit
from dovetail_precision.ranges.evidence import overflow

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.ranges.intervals import Intervals
    from dovetail_precision.variable import Variable

__all__ = ["Obstacles"]


class Obstacles:
    """Answers by variable and type; each is worked out once."""

    def __init__(self, intervals: Intervals, is_constant: Callable[[ir.Value], bool]):
        self._intervals = intervals
        self._is_constant = is_constant
        self._known: dict[tuple[int, str], str] = {}
        self._misfits: dict[tuple[int, str], str] = {}

    def __call__(self, variable: Variable, name: str) -> str:
        """What speaks against float type `name` for `variable`, in one clause; empty if nothing does."""
        key = (id(variable), name)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._constants(variable, name) or overflow(variable, name, self._intervals)
        return known

    def _constants(self, variable: Variable, name: str) -> str:
        for _, value in variable.inputs:
            if self._is_constant(value):
                key = (id(value), name)
                if key not in self._misfits:
                    self._misfits[key] = misfit(value.const_value, name)
                if self._misfits[key]:
                    return f"its constant '{value.name}' {self._misfits[key]}"
        return ""
