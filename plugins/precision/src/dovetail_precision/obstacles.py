"""Reasons against a low type: constants out of range, overflow, and conditioning."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph, Format
from dovetail_placement.place import claim_on

from dovetail_precision.conditioning.amplification import (
    THRESHOLDS,
    find_amplified,
    find_complements,
    find_epsilon_guards,
)
from dovetail_precision.conditioning.findings import ConditioningFinding, Magnitudes
from dovetail_precision.conditioning.statistics import find_statistics
from dovetail_precision.constant_range import magnitude_fits, misfit
from dovetail_precision.problem import FormatReasons
from dovetail_precision.ranges.intervals import Intervals
from dovetail_precision.ranges.measure import measured_ranges
from dovetail_precision.ranges.range import NARROW

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_precision.problem import FormatVariable, Value
    from dovetail_precision.ranges.overflow import OverflowAnalysis


_NARROW = Format.of(NARROW)


class Obstacles(FormatReasons):
    """Collects the reasons of one model, cached per variable. Only float16 has a range narrower than float32's."""

    def __init__(self, overflow: OverflowAnalysis, conditions: Conditions):
        self._overflow = overflow
        self._conditions = conditions
        self._known: dict[int, str] = {}
        self._misfits: dict[int, str] = {}

    def of_values(self, variable: FormatVariable, format_: Format) -> str:
        """Return which value of `variable` leaves the range of `format_`; empty if none does."""
        if format_ is not _NARROW:
            return ""
        known = self._known.get(id(variable))
        if known is None:
            known = self._known[id(variable)] = self._constants(variable) or self._overflow.overflow(variable)
        return known

    def of_conditioning(self, variable: FormatVariable, format_: Format) -> str:
        """Return the conditioning problem of `format_`; empty for pinned nodes and `--low`, which take precedence."""
        if variable.policy in ("keep", "pinned") or variable.override and variable.policy == "lower":
            return ""
        return self.warning(variable, format_)

    def warning(self, variable: FormatVariable, format_: Format) -> str:
        """Return the conditioning problem of `format_` at `variable`, whatever the user asked for; empty if none."""
        return self._conditions.against(variable.node, format_.element)

    def _constants(self, variable: FormatVariable) -> str:
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


class Conditions:
    """Ill-conditioned nodes, which should compute high whatever their policy: `ctx.analysis(Conditions, model)`."""

    def __init__(self, findings: Iterable[ConditioningFinding]):
        self._known: dict[tuple[int, str], str] = {}
        for finding in findings:
            for name in finding.types:
                for node in finding.nodes:
                    self._known.setdefault((id(node), name), finding.why)

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Conditions:
        """Run all rules on the current revision of `model`."""
        nodes, intervals = ctx.analysis(FlatGraph, model).nodes, ctx.analysis(Intervals, model)
        measured = {key: known for key, (_, known) in measured_ranges(model).items()}
        magnitudes = Magnitudes(measured, intervals)
        low = THRESHOLDS.keys() & {backend.low for backend in ctx.backends}
        findings = [
            find_statistics(nodes, intervals.of, measured),
            find_epsilon_guards(nodes, intervals, measured),
            find_complements(nodes, intervals, _is_product),
            *(find_amplified(nodes, magnitudes, _is_product, name) for name in sorted(low)),
        ]
        return cls(chain.from_iterable(findings))

    def against(self, node: ir.Node, name: str) -> str:
        """Return why `node` is ill-conditioned in float type `name`, in one clause; empty if it is not."""
        return self._known.get((id(node), name), "")


def _is_product(node: ir.Node) -> bool:
    """Check whether the policy of `node` is `lower`: the compute-bound operators."""
    claim = claim_on(node)
    return claim is not None and claim.role == "lower"
