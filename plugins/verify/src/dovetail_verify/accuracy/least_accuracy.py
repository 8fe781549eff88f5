"""The least accuracy of integers that nobody asked for: below it, a result has better formats or is in floats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import Remark
from dovetail.text import pluralize

from dovetail_verify.accuracy.costly_nodes import chooses_integers
from dovetail_verify.accuracy.formats import meet_goals_over_formats
from dovetail_verify.accuracy.goals import Goals, worst_of
from dovetail_verify.accuracy.raising import Limits
from dovetail_verify.accuracy.trials import integer_nodes
from dovetail_verify.floats_instead import FloatsInstead, quantizes_activations
from dovetail_verify.output_comparison import POOR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dovetail.plugin import CompiledModel, CompileJob

    from dovetail_verify.accuracy.costly_nodes import Considered
    from dovetail_verify.compare import OutputVerification
    from dovetail_verify.held_out import HeldOut

_LIMITS = Limits(12, 16)
"""A search that nobody asked for takes half as long as one for a goal; past that, more nodes are in floats."""

LEAST_ACCURACY = "least-accuracy"
"""The rule of the remark on a result whose integers would be poor."""

_ADVICE = "--all-integers keeps all of them; --min-snr sets another level"


@dataclass(frozen=True, slots=True)
class _LeastAccuracy(Goals):
    """The level below which the command warns, as the goal of a request without one."""

    def __str__(self) -> str:
        return f"{self.min_snr:g} dB, the least without a goal"

    @property
    def way_out(self) -> str:
        """See `Goals.way_out`."""
        return _ADVICE


def above_least(
    job: CompileJob, held_out: HeldOut, considered: Considered, shapes: Mapping[str, Sequence[int]]
) -> CompiledModel:
    """Return a result, or where it is in integers and an output would have a warning, what replaces it.

    That is what a search for the level of the warning finds. Integers stay where they are faster than floats of the
    request; where they are not, or cannot meet the level, all is in floats. A remark says what integers would give. The
    floats are those of the request, and float32 where these miss the level as well. A result whose weights alone are in
    integers has them for its size, and stays.

    The search sees the samples that calibrate, as integers that leave too little on these leave no more on others. Its
    result is judged on the others.

    Args:
        job: The compilation.
        held_out: Its data.
        considered: The result of the request as it is, or with other scales.
        shapes: Shapes of inputs by name that the model leaves open.

    Returns:
        The result, with its comparison if there was one.
    """
    compiled = considered.compiled
    if not chooses_integers(job, compiled) or not quantizes_activations(compiled):
        return compiled
    goals = _LeastAccuracy(min_snr=POOR)
    try:
        compiled.verification = before = held_out.judged(compiled, shapes)
    except DovetailError:
        return compiled  # whoever compares it later says why that fails
    if considered.snr_db >= POOR and not _misses(goals, before):
        return compiled
    floats = None if job.keywords.get("compare_floats") is False else FloatsInstead(job, ties=True)
    try:
        better = meet_goals_over_formats(job, held_out, goals, floats, considered.request, _LIMITS).compiled
        after = held_out.judged(better, shapes)
    except DovetailError as error:  # the result stands without it
        compiled.plan.remarks.append(_in_vain(before, f"the search for better formats failed: {error.message}"))
        return compiled
    if _worst(after) <= _worst(before):
        found = f"floats are no better here: with all in floats that can be, it has {worst_of(after)}"
        compiled.plan.remarks.append(_in_vain(before, found))
        return compiled
    after.pace = floats.pace if floats is not None else ""
    better.verification = after
    better.plan.summary.pop("accuracy", None)  # nobody asked for the level, so it is neither met nor missed
    better.plan.remarks = [
        *(remark for remark in better.plan.remarks if remark.rule != "goal" or remark.node),
        *(remark for remark in compiled.plan.remarks if remark.rule == "better-scales"),
        _remark(considered, before, after, better, held_out),
    ]
    return better


def _misses(goals: Goals, found: OutputVerification) -> bool:
    return any(not one.open_because for one in found.outputs) and bool(goals.missed(found))


def _worst(found: OutputVerification) -> float:
    return min((one.rated_db for one in found.outputs), default=0.0)


def _finite(found: OutputVerification) -> float | None:
    worst = _worst(found)
    return round(worst, 2) if math.isfinite(worst) else None


def _remark(
    considered: Considered, before: OutputVerification, after: OutputVerification, better: CompiledModel, data: HeldOut
) -> Remark:
    nodes, integers = better.plan.nodes, len(integer_nodes(better.plan))
    kept = "nothing is in integers, because they leave"
    if integers:
        kept = f"{integers} of {pluralize(len(nodes), 'node')} stayed in integers, because more of them leave"
    seen = "" if _worst(before) < POOR else f" (SNR {considered.snr_db:.1f} dB on samples that calibrate)"
    judge = "which nothing was calibrated with" if data.split.judged else "which also calibrated, for want of more"
    less = "" if _worst(after) >= POOR else "; float32 leaves no more here"
    why = (
        f"{kept} {worst_of(before)} at the worst output{seen}, below the {POOR:g} dB where a result has a warning; "
        f"{worst_of(after)} now, on data {judge}{less}"
    )
    facts = {"integers_db": _finite(before), "result_db": _finite(after)}
    return Remark("analysis", "", "accuracy", LEAST_ACCURACY, why, advice=_ADVICE, facts=facts)


def _in_vain(before: OutputVerification, found: str) -> Remark:
    why = f"integers stayed although they leave {worst_of(before)} at the worst output: {found}"
    return Remark("analysis", "", "accuracy", LEAST_ACCURACY, why)
