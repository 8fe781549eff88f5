"""The search for the cheapest selection of groups that meets the goals when they are raised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from dovetail_verify.accuracy.groups import Group, Groups
from dovetail_verify.accuracy.trials import BROKEN, Noise, noise_of

if TYPE_CHECKING:
    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.accuracy.trials import Trial, Trials
    from dovetail_verify.compare import OutputComparison, Verification


_UNKNOWN = 1e-4  # what is allowed at first where nothing can be told from what was measured
_LEAST = 1e-15  # noise that float32 cannot tell from none
_STEPS = 120  # in which the price of noise is found


def allowed_noise(goals: Goals, verification: Verification) -> Noise:
    """The noise of each float output at which it is likely to meet the goals; only measuring tells whether it does."""
    return {
        (output.name, kind): _UNKNOWN if output.broken else max(noise_of(snr_db), _LEAST) * shortfall(goals, output)
        for output in verification.outputs
        for kind, snr_db in (("whole", output.snr_db), ("typical", output.typical_snr_db))
        if snr_db is not None
    }


def shortfall(goals: Goals, output: OutputComparison) -> float:
    """By what factor the noise of an output must fall to meet the goals; above 1 where it may grow.

    SNR says it, a cosine nearly does. The largest difference grows with the square root of the energy. Of answers that
    change nothing of the kind is known, so a tenth of the noise is tried.
    """
    if output.broken:
        return 1 / BROKEN
    noise = max(noise_of(cast("float", output.snr_db)), 1 / BROKEN)
    bounds = [BROKEN]
    if goals.min_snr is not None:
        bounds.append(noise_of(goals.min_snr) / noise)
    if goals.min_cosine is not None:
        bounds.append(max(2 * (1 - goals.min_cosine), 1e-12) / noise)
    if goals.max_abs is not None and output.max_abs:
        bounds.append((goals.max_abs / output.max_abs) ** 2)
    if goals.min_top1 is not None and output.top1 is not None and output.top1 < goals.min_top1:
        bounds.append(0.1)
    return min(bounds)


def select_groups(groups: Groups, allowed: Noise) -> list[Group]:
    """The groups to raise, in graph order, so that the noise of the others is within what is allowed.

    Of all ways to divide the groups, the one is taken that costs least: the work of what is raised, a conversion
    wherever a raised group follows a low one or the other way round, and a price for noise. The price is the lowest at
    which the noise is within what is allowed.
    """
    noise = [group.worst(allowed) for group in groups.groups]
    raised = [False] * len(noise)
    low, high = 1e-6 * sum(group.work for group in groups.groups), 0.0
    if _within(groups.rest(()), allowed):
        return []
    price = max(low, 1.0)
    for _ in range(_STEPS):
        found = _divided(groups.groups, noise, price)
        if _within(groups.rest([group for group, is_raised in zip(groups.groups, found) if is_raised]), allowed):
            raised, high = found, price
        else:
            low = price
        price = math.sqrt(low * high) if high else price * 16
        if high and high < 1.05 * low:
            break
    if not high:
        return list(groups.groups)
    return [group for group, is_raised in zip(groups.groups, raised) if is_raised]


def _divided(groups: Sequence[Group], noise: Sequence[float], price: float) -> list[bool]:
    """Which groups are raised in the cheapest division, by dynamic programming along the graph."""
    # For the groups so far: the least cost with the last one low, and with it raised.
    costs = (0.0, math.inf)
    border = 0.0
    came: list[tuple[bool, bool]] = []
    for group, loud in zip(groups, noise):
        stay, fall = costs[0], costs[1] + border
        rise, keep = costs[0] + border, costs[1]
        came.append((fall < stay, keep <= rise))
        costs = (min(stay, fall) + price * loud, min(rise, keep) + group.work)
        border = group.border
    raised = costs[1] < costs[0]
    found = []
    for from_low, from_raised in reversed(came):
        found.append(raised)
        raised = from_raised if raised else from_low
    return found[::-1]


def _within(noise: Noise, allowed: Noise) -> bool:
    return all(value <= allowed.get(name, BROKEN) for name, value in noise.items())


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
