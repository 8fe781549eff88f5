"""The search for the cheapest selection of groups that meets the goals when they are raised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail_verify.accuracy.groups import Group, Groups
from dovetail_verify.accuracy.selection import allowed_noise, select_groups, shortfall
from dovetail_verify.accuracy.trials import Noise

if TYPE_CHECKING:
    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.accuracy.trials import Trial, Trials


_TRIES = 12  # selections that are tried
_DOUBTFUL = 4  # groups that are measured after a selection that missed
_RELAXED = 4.0  # how much more noise is allowed after a selection that meets the goals
_WORTH = 0.02  # share of all work that a group must have to be split
_AUDIBLE = 0.1  # share of all noise that a group must have to be split for a ranking
_REST = 0.25  # share of all noise that may be left to groups when a ranking is done


def cheapest(
    trials: Trials, groups: Groups, goals: Goals, low: Trial, runs: int, spare: int = 3, most: int = 10**6
) -> tuple[frozenset[str], list[Group]]:
    """The cheapest selection that is found to meet the goals; everything where only that does.

    Args:
        trials: Runs trials.
        groups: The groups.
        goals: The goals; with everything raised they are met.
        low: The trial with nothing raised.
        runs: How many runs of the trials there may be before groups are no longer split.
        spare: How often less is raised after a selection that meets the goals.
        most: How many runs of the trials there may be in all; then the best selection so far is taken.

    Returns:
        The names of the nodes, and their groups.
    """
    allowed = allowed_noise(goals, low.verification)
    best: frozenset[str] | None = None
    chosen: list[Group] = []
    least, scale, met_at, missed_at = math.inf, 1.0, None, None
    spared = 0
    for _ in range(_TRIES):
        if trials.runs >= most:
            break

        def costly(_: object, scale: float = scale) -> Group | None:
            return _costly(groups, groups.limits(allowed, scale))

        groups.refine(costly, runs)
        raised = select_groups(groups, groups.limits(allowed, scale))
        trial = trials.measure({name for group in raised for name in group.names})
        work = sum(group.work for group in raised)
        if not goals.missed(trial.verification):
            if work < least:
                best, chosen, least = trial.raised, raised, work
            met_at = scale if met_at is None else max(met_at, scale)
            spared += 1
            if spared > spare:
                break
            # What was missed before bounds how much may be left low; where nothing was, more is tried.
            scale = math.sqrt(met_at * missed_at) if missed_at is not None else scale * _RELAXED
        else:
            if len(raised) == len(groups.groups):
                break
            doubtful = [group for group in groups.groups if group not in raised]
            if groups.measure_doubtful(doubtful, min(_DOUBTFUL, max(most - trials.runs, 0))):
                continue
            missed_at = scale if missed_at is None else min(missed_at, scale)
            if met_at is not None:
                spared += 1
                if spared > spare:
                    break
                scale = math.sqrt(met_at * missed_at)
            else:
                scale *= _tightened(trial, goals)
    if best is None or len(chosen) == len(groups.groups) and spare:
        return _shortest(trials, groups, goals, allowed, most)
    return best, chosen


def _shortest(
    trials: Trials, groups: Groups, goals: Goals, allowed: Noise, most: int
) -> tuple[frozenset[str], list[Group]]:
    """The fewest groups that meet the goals when they are raised, the loudest first; by bisection."""
    order = sorted(groups.groups, key=lambda group: -group.worst(allowed))
    missing, meeting = 0, len(order)
    while meeting - missing > 1 and trials.runs < most:
        middle = (missing + meeting) // 2
        trial = trials.measure({name for group in order[:middle] for name in group.names})
        if goals.missed(trial.verification):
            missing = middle
        else:
            meeting = middle
    chosen = set(order[:meeting])
    raised = [group for group in groups.groups if group in chosen]
    return frozenset(name for group in raised for name in group.names), raised


def loudest_splittable(groups: Groups, bearable: Noise) -> Group | None:
    """The group with the most noise, unless single nodes make nearly all of the noise already.

    Args:
        groups: The groups.
        bearable: The noise that each output can bear, which noise is measured by; see `Group.worst`.
    """
    shares = {group: group.worst(bearable) for group in groups.groups}
    everything = sum(shares.values()) or 1.0
    loud = {group: share / everything for group, share in shares.items() if group.cuts}
    if sum(loud.values()) < _REST:
        return None
    loudest = max(loud, key=lambda group: loud[group])
    return loudest if loud[loudest] > _AUDIBLE else None


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
