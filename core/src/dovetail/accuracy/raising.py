"""Raising precision until a request meets its accuracy goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dovetail.accuracy.groups import Group, Groups
from dovetail.accuracy.selection import allowed_noise, select_groups, shortfall
from dovetail.accuracy.streamed import stream
from dovetail.accuracy.trials import Noise, decibels
from dovetail.accuracy.units import Candidates, locked_nodes
from dovetail.counting import counted
from dovetail.errors import DovetailError
from dovetail.planning.remark import Remark

if TYPE_CHECKING:
    from dovetail.accuracy.goals import Goals
    from dovetail.accuracy.trials import Trial, Trials
    from dovetail.compiled import CompiledModel
    from dovetail.passes.request import Request
    from dovetail.runtime.guard import GuardedEngine

    Engines = Mapping[str, Sequence[GuardedEngine]]

__all__ = ["Raised", "meet_goals", "recorded_failure"]

_TRIES = 12  # selections that are tried
_SPARING = 3  # of those, how many after one that meets the goals, to raise less
_RELAXED = 4.0  # how much more noise is allowed after a selection that meets the goals
_SHOWN = 6  # nodes in a message
_DOUBTFUL = 4  # groups that are measured after a selection that missed
_WORTH = 0.02  # share of all work that a group must have to be split


@dataclass(frozen=True)
class Raised:
    """What came of goals.

    Attributes:
        compiled: The result: one that meets the goals, or the most accurate one there is.
        failure: Why the goals are not met; None where they are.
    """

    compiled: CompiledModel
    failure: DovetailError | None = None


def meet_goals(trials: Trials, request: Request, goals: Goals, engines: Engines) -> Raised:
    """Compile a request so that it meets its goals, with as little as possible raised.

    Args:
        trials: Compiles and runs the request with nodes raised.
        request: The request.
        goals: What every float output must meet.
        engines: The host's engines, for the one run that looks at every node.

    Raises:
        DovetailError: The request cannot be compiled or run, or has nothing that the goals could be measured on.
    """
    low = trials.run(())
    if not goals.missed(low.verification):
        return Raised(_recorded(low, low, goals, trials, None))
    locked = locked_nodes(low.compiled.model, request)
    candidates = Candidates(low.compiled, locked)
    high = trials.run(candidates.names)
    looked = stream(trials.original, high.compiled.model, low.compiled.model, engines, trials.data)
    low = replace(low, compiled=None)
    prior = {name: errors.own for name, errors in looked.errors.items()}
    groups = Groups(trials, candidates.names, candidates.units(high.compiled, looked), prior)
    if goals.missed(high.verification):
        failure = _unreachable(high, goals, locked)
        return Raised(_recorded(high, low, goals, trials, (groups, groups.groups)), failure)
    high = replace(high, compiled=None)
    found, raised = _search(trials, groups, goals, low)
    if found is None:
        found, raised = high, groups.groups
    return Raised(_recorded(trials.run(found.raised), low, goals, trials, (groups, raised)))


def recorded_failure(compiled: CompiledModel, goals: Goals) -> DovetailError | None:
    """Why a result that was compiled before for the same goals does not meet them; None where it does."""
    recorded = compiled.plan.summary.get("accuracy", {})
    if recorded.get("met", True):
        return None
    figures = ", ".join(f"'{name}' has SNR {value} dB" for name, value in recorded.get("snr", {}).items())
    return DovetailError(f"the goal is not met: {figures}; {goals} is asked for", "this is what the same request gave")


def _search(trials: Trials, groups: Groups, goals: Goals, low: Trial) -> tuple[Trial | None, list[Group]]:
    """The cheapest selection that was found to meet the goals; None if none did but everything high."""
    allowed = allowed_noise(goals, low.verification)
    units = sum(len(group.units) for group in groups.groups)
    budget = trials.runs + 2 * max(units, 1).bit_length() + 4
    best: Trial | None = None
    chosen: list[Group] = []
    least, scale, met_at, missed_at = math.inf, 1.0, None, None
    spared = 0
    for _ in range(_TRIES):
        groups.refine(lambda _, scale=scale: _costly(groups, groups.limits(allowed, scale)), budget)
        raised = select_groups(groups, groups.limits(allowed, scale))
        trial = trials.run({name for group in raised for name in group.names})
        work = sum(group.work for group in raised)
        if not goals.missed(trial.verification):
            if work < least:
                best, chosen, least = replace(trial, compiled=None), raised, work
            met_at = scale if met_at is None else max(met_at, scale)
            spared += 1
            if spared > _SPARING:
                break
            # What was missed before bounds how much may be left low; where nothing was, more is tried.
            scale = math.sqrt(met_at * missed_at) if missed_at is not None else scale * _RELAXED
        else:
            if len(raised) == len(groups.groups):
                break
            if groups.measure_doubtful([group for group in groups.groups if group not in raised], _DOUBTFUL):
                continue
            missed_at = scale if missed_at is None else min(missed_at, scale)
            if met_at is not None:
                spared += 1
                if spared > _SPARING:
                    break
                scale = math.sqrt(met_at * missed_at)
            else:
                scale *= _tightened(trial, goals)
    if best is None or len(chosen) == len(groups.groups):
        return _shortest(trials, groups, goals, allowed)
    return best, chosen


def _shortest(trials: Trials, groups: Groups, goals: Goals, allowed: Noise) -> tuple[Trial | None, list[Group]]:
    """The fewest groups that meet the goals when they are raised, the loudest first; by bisection."""
    order = sorted(groups.groups, key=lambda group: -group.worst(allowed))
    missing, meeting = 0, len(order)
    best: Trial | None = None
    while meeting - missing > 1:
        middle = (missing + meeting) // 2
        trial = trials.run({name for group in order[:middle] for name in group.names})
        if goals.missed(trial.verification):
            missing = middle
        else:
            best, meeting = replace(trial, compiled=None), middle
    return best, order[:meeting]


def _costly(groups: Groups, allowed: Noise) -> Group | None:
    """Of the groups that would be raised, the one with the most work that can be split."""
    total = sum(group.work for group in groups.groups)
    raised = select_groups(groups, allowed)
    large = [group for group in raised if group.cuts and group.work > _WORTH * total]
    return max(large, key=lambda group: group.work, default=None)


def _tightened(trial: Trial, goals: Goals) -> float:
    """How much less may be allowed after a selection that missed: as much as it has too much, within bounds."""
    rated = (output for output in trial.verification.outputs if output.snr_db is not None)
    return min(0.6, max(0.1, min((shortfall(goals, output) for output in rated), default=1.0)))


def _unreachable(high: Trial, goals: Goals, locked: Mapping[str, str]) -> DovetailError:
    missed = "; ".join(str(miss) for miss in goals.missed(high.verification)[:_SHOWN])
    if locked:
        names = list(locked)
        kept = ", ".join(f"'{name}'" for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        reasons = ", ".join(list(dict.fromkeys(locked.values()))[:_SHOWN])
        return DovetailError(
            f"the goal is not met: {missed}, with everything raised that may be; "
            f"{counted(len(names), 'node')} may not ({kept}): {reasons}",
            "take that back, narrow it, or lower the goal",
        )
    return DovetailError(
        f"the goal is not met: {missed}, although every node is computed in the types of the source model",
        "these engines compute sums in another order; lower the goal",
    )


def _recorded(
    trial: Trial, low: Trial, goals: Goals, trials: Trials, found: tuple[Groups, list[Group]] | None
) -> CompiledModel:
    """The result of a trial, with what was raised in its plan and a remark on each node that was."""
    compiled = trial.compiled
    raised = [unit for group in found[1] for unit in group.names] if found else []
    summary: dict[str, Any] = {"goals": goals.as_dict(), "met": not goals.missed(trial.verification)}
    summary |= {"runs": trials.runs, "snr_before": _figures(low), "snr": _figures(trial)}
    compiled.plan.summary["accuracy"] = summary | {"raised": raised}
    compiled.plan.remarks += _remarks(trial, low, goals, trials, found, raised)
    return compiled


def _remarks(trial, low, goals, trials, found, raised) -> list[Remark]:
    before, after = _worst(low), _worst(trial)
    if not raised:
        return []
    whole = f"{counted(len(raised), 'node')} raised for {goals}: {before} before, {after} with them"
    remarks = [Remark("analysis", "", "accuracy", "goal", f"{whole}, found in {counted(trials.runs, 'run')}")]
    if found is None:
        return remarks
    groups, chosen = found
    total = groups.total()
    for group in chosen:
        share = max((group.noise[n] / v for n, v in total.items() if v), default=0.0)
        alone = decibels(max(group.noise.values(), default=0.0))
        about = "it makes" if len(group.units) == 1 else f"its group of {counted(len(group.units), 'node')} makes"
        figure = "breaks the result alone" if alone == -math.inf else f"{100 * min(share, 1):.1f} % of the noise"
        figure = f"{about.removesuffix(' makes')} {figure}" if alone == -math.inf else f"{about} {figure}"
        why = f"raised for {goals}: {figure}; {before} before, {after} with all that was raised"
        remarks += [Remark("passed", name, "accuracy", "goal", why) for name in group.names]
    return remarks


def _figures(trial: Trial) -> dict[str, float | None]:
    rated = [output for output in trial.verification.outputs if output.snr_db is not None]
    return {output.name: round(output.snr_db, 2) if math.isfinite(output.snr_db) else None for output in rated}


def _worst(trial: Trial) -> str:
    return trial.verification.short() or "no float output"
