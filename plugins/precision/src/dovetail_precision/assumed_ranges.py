"""Remarks on values that were typed float16 although their range is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.formats import Format
from dovetail.text import pluralize

from dovetail_precision.ranges.overflow import OverflowAnalysis
from dovetail_precision.ranges.range import NARROW

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context

    from dovetail_precision.problem import TypingProblem


_RULE = "assumed-range"
_NARROW = Format.of(NARROW)
_OF_NODE = f"the range of its values is unknown without data; they are assumed to fit {NARROW}"


def remark_assumed_ranges(problem: TypingProblem, model: Model, ctx: Context) -> None:
    """Remark every node that was typed float16 with values of unknown range, and count those values once.

    Does nothing when the request has data: then ranges are measured.
    """
    if ctx.request.data is not None or all(backend.low != NARROW for backend in ctx.backends):
        return
    overflow = ctx.analysis(OverflowAnalysis, model)
    assumed: dict[int, str] = {}
    for variable in problem.variables:
        if variable.format is not _NARROW or variable.present is _NARROW:
            continue
        around = [*variable.activations, *(value for _, value in variable.outputs)]
        unknown = [value for value in around if not overflow.knows(value.source)]
        if unknown:
            assumed.update((id(value), value.name) for value in unknown)
            ctx.remark("analysis", variable.node, _RULE, _OF_NODE, suggest="--data")
    if assumed:
        names = list(assumed.values())
        many = f"{pluralize(len(names), 'value')} (such as '{names[-1]}')"
        why = f"the range of {many} is unknown without --data; they are assumed to fit {NARROW}"
        ctx.remark("analysis", "", _RULE, why, suggest="--data")
