"""What keeps a variable out of a narrower type: constants that it reads, and how far its values reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail_precision.fits import fits_surely, misfit
from dovetail_precision.ranges.range import NARROW

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.ranges.evidence import Evidence
    from dovetail_precision.variable import Variable

__all__ = ["Obstacles"]


class Obstacles:
    """Answers by variable; each is worked out once. Only float16 has a range that is worth asking for."""

    def __init__(self, evidence: Evidence, is_constant: Callable[[ir.Value], bool]):
        self._evidence = evidence
        self._is_constant = is_constant
        self._known: dict[int, str] = {}
        self._misfits: dict[int, str] = {}

    def __call__(self, variable: Variable, name: str) -> str:
        """What speaks against float type `name` for `variable`, in one clause; empty if nothing does."""
        if name != NARROW:
            return ""
        known = self._known.get(id(variable))
        if known is None:
            known = self._known[id(variable)] = self._constants(variable) or self._evidence.overflow(variable)
        return known

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
        if fits_surely(self._evidence.intervals.constant_magnitude(value), NARROW):
            return ""
        return misfit(value.const_value, NARROW)
