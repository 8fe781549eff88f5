"""What goals leave behind in a result: data in its plan, and remarks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.planning.remark import Remark
from dovetail.text import pluralize

from dovetail_verify.accuracy.trials import decibels

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.accuracy.groups import Group, Groups
    from dovetail_verify.accuracy.trials import Trial


def record(
    trial: Trial,
    low: Trial,
    goals: Goals,
    runs: int,
    groups: Groups | None = None,
    chosen: Sequence[Group] = (),
    measured_on: str = "",
) -> CompiledModel:
    """The result of a trial, with what was raised in its plan and a remark on each node that was.

    Args:
        trial: The trial.
        low: The trial with nothing raised.
        goals: The goals.
        runs: How many runs it took.
        groups: All groups.
        chosen: Those that were raised.
        measured_on: What part of the data the figures are of, as a sentence.
    """
    compiled = trial.result
    trial.verification.missed = goals.missed(trial.verification)
    raised = [name for group in chosen for name in group.names]
    summary: dict[str, Any] = {"goals": goals.as_dict(), "met": not trial.verification.missed}
    summary |= {"runs": runs, "snr_before": figures(low), "snr": figures(trial)}
    if measured_on:
        summary["measured_on"] = trial.verification.held_back = measured_on
    compiled.plan.summary["accuracy"] = summary | {"raised": raised}
    if groups is not None and raised:
        compiled.plan.remarks += _remarks(trial, low, goals, runs, groups, chosen)
    return compiled


def recorded_failure(compiled: CompiledModel, goals: Goals) -> DovetailError | None:
    """Why a result that was compiled before for the same goals does not meet them; None where it does."""
    recorded = compiled.plan.summary.get("accuracy", {})
    if recorded.get("met", True):
        return None
    found = ", ".join(f"'{name}' has SNR {value} dB" for name, value in recorded.get("snr", {}).items())
    return DovetailError(f"the goal is not met: {found}; {goals} is asked for", "this is what the same request gave")


def _remarks(
    trial: Trial, low: Trial, goals: Goals, runs: int, groups: Groups, chosen: Sequence[Group]
) -> list[Remark]:
    before, after = _worst(low), _worst(trial)
    number = sum(len(group.units) for group in chosen)
    whole = (
        f"{pluralize(number, 'node')} raised for {goals}: {before} before, {after} with them; {pluralize(runs, 'run')}"
    )
    remarks = [Remark("analysis", "", "accuracy", "goal", whole)]
    total = groups.total()
    for group in chosen:
        about = "alone" if len(group.units) == 1 else f"its group of {pluralize(len(group.units), 'node')}"
        alone = decibels(max((value for (_, kind), value in group.noise.items() if kind == "whole"), default=0.0))
        noise = "breaks the result" if alone == -math.inf else f"{100 * min(group.worst(total), 1):.1f} % of the noise"
        why = f"raised for {goals}: {about}: {noise}; {before} before, {after} with all that was raised"
        remarks += [Remark("passed", name, "accuracy", "goal", why) for name in group.names]
    return remarks


def figures(trial: Trial) -> dict[str, float | None]:
    """The SNR of every float output, in decibels; None where it is infinite."""
    rated = {output.name: output.snr_db for output in trial.verification.outputs if output.snr_db is not None}
    return {name: round(snr_db, 2) if math.isfinite(snr_db) else None for name, snr_db in rated.items()}


def _worst(trial: Trial) -> str:
    snr = trial.verification.worst_snr_db
    return "exact" if snr == math.inf else "broken" if snr == -math.inf else f"SNR {snr:.1f} dB"
