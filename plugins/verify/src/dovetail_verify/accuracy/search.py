"""Search for the cheapest groups to raise so that the goals are met."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.text import pluralize

from dovetail_verify.accuracy.groups import Groups, UnitGroup
from dovetail_verify.accuracy.trials import BROKEN, Noise, noise_of

if TYPE_CHECKING:
    from dovetail.plugin import Steps

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.accuracy.trials import AccuracyTrial, AccuracyTrials
    from dovetail_verify.compare import OutputVerification
    from dovetail_verify.output_comparison import OutputComparison


_UNKNOWN = 1e-4  # noise allowed initially if the measurements give no indication
_LEAST = 1e-15  # noise that float32 cannot distinguish from none
_STEPS = 120  # bisection steps for the price of noise


def allowed_noise(goals: Goals, verification: OutputVerification) -> Noise:
    """Estimate the noise at which each output meets the goals; only a measurement can confirm it."""
    return {
        (output.name, kind): _UNKNOWN if output.broken else max(noise_of(snr_db), _LEAST) * shortfall(goals, output)
        for output in verification.outputs
        for kind, snr_db in (("whole", output.rated_db), ("typical", output.typical_snr_db))
        if snr_db is not None
    }


def shortfall(goals: Goals, output: OutputComparison) -> float:
    """Return the factor by which an output's noise must change to meet the goals; above 1 if it may grow.

    For SNR the factor is exact, for a cosine and a divergence nearly so. The largest difference grows with the square
    root of the energy. For changed answers no such relation is known, so a tenth of the noise is tried.
    """
    if output.broken:
        return 1 / BROKEN
    noise = max(noise_of(output.rated_db), 1 / BROKEN)
    bounds = [BROKEN]
    if goals.min_snr is not None:
        bounds.append(noise_of(goals.min_snr) / noise)
    if goals.min_cosine is not None:
        bounds.append(max(2 * (1 - goals.min_cosine), 1e-12) / noise)
    if goals.max_abs is not None and output.max_abs:
        bounds.append((goals.max_abs / output.max_abs) ** 2)
    if goals.max_kl is not None and output.kl:
        bounds.append(goals.max_kl / output.kl)
    rise = output.perplexity_rise
    if goals.max_perplexity_rise is not None and rise is not None and rise > 0:
        bounds.append(goals.max_perplexity_rise / rise)
    answers = output.top1 if output.snr_db is not None else max(output.equal, output.set_agreement or 0.0)
    if goals.min_top1 is not None and answers is not None and answers < goals.min_top1:
        bounds.append(0.1)
    return min(bounds)


def select_groups(groups: Groups, allowed: Noise) -> list[UnitGroup]:
    """Return the groups to raise, in graph order, so that the noise of the others is within the allowed noise.

    The chosen division minimizes the sum of the cost of the raised groups, a conversion at each boundary between raised
    and low groups, and a price for noise. The price is the lowest at which the noise is within the limit.
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


def _divided(groups: Sequence[UnitGroup], noise: Sequence[float], price: float) -> list[bool]:
    """Find the cheapest division by dynamic programming along the graph; return which groups are raised."""
    # Least cost so far with the last group low, and with it raised.
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


_TRIES = 12  # selections to try
_DOUBTFUL = 4  # groups to measure after a selection that missed
_RELAXED = 4.0  # factor by which the allowed noise grows after a selection that meets the goals
_WORTH = 0.02  # least share of the total cost for a group to be split
_AUDIBLE = 0.1  # least share of the total noise for a group to be split in a ranking
_REST = 0.25  # share of the noise in splittable groups at which a ranking is finished


def cheapest(
    trials: AccuracyTrials,
    groups: Groups,
    goals: Goals,
    low: AccuracyTrial,
    runs: int,
    spare: int = 3,
    most: int = 10**6,
) -> Steps[tuple[frozenset[str], list[UnitGroup]]]:
    """Find the cheapest selection that meets the goals; all groups if no smaller one does.

    Args:
        trials: Proposes trials.
        groups: The groups.
        goals: The goals; they are met with everything raised.
        low: The trial with nothing raised.
        runs: Total number of runs after which groups are no longer split.
        spare: Number of attempts to raise less after a selection that meets the goals.
        most: Total number of runs after which the best selection so far is returned.

    Returns:
        The names of the nodes, and their groups.
    """
    allowed = allowed_noise(goals, low.verification)
    best: frozenset[str] | None = None
    chosen: list[UnitGroup] = []
    least, scale, met_at, missed_at = math.inf, 1.0, None, None
    spared = 0
    for _ in range(_TRIES):
        if trials.runs >= most:
            break

        def costly(_: object, scale: float = scale) -> UnitGroup | None:
            return _costly(groups, groups.limits(allowed, scale))

        yield from groups.refine(costly, runs)
        raised = select_groups(groups, groups.limits(allowed, scale))
        names = {name for group in raised for name in group.names}
        why = f"the cheapest {pluralize(len(names), 'node')} to raise, by the noise that was measured"
        trial = yield from trials.measure(names, why=why)
        work = sum(group.work for group in raised)
        if not goals.missed(trial.verification):
            if work < least:
                best, chosen, least = trial.raised, raised, work
            met_at = scale if met_at is None else max(met_at, scale)
            spared += 1
            if spared > spare:
                break
            # A previous miss bounds how much may stay low; without one, allow more.
            scale = math.sqrt(met_at * missed_at) if missed_at is not None else scale * _RELAXED
        else:
            if len(raised) == len(groups.groups):
                break
            doubtful = [group for group in groups.groups if group not in raised]
            if (yield from groups.measure_doubtful(doubtful, min(_DOUBTFUL, max(most - trials.runs, 0)))):
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
        return (yield from _shortest(trials, groups, goals, allowed, most))
    return best, chosen


def _shortest(
    trials: AccuracyTrials, groups: Groups, goals: Goals, allowed: Noise, most: int
) -> Steps[tuple[frozenset[str], list[UnitGroup]]]:
    """Find the fewest groups that meet the goals, loudest first, by bisection."""
    order = sorted(groups.groups, key=lambda group: -group.worst(allowed))
    missing, meeting = 0, len(order)
    while meeting - missing > 1 and trials.runs < most:
        middle = (missing + meeting) // 2
        names = {name for group in order[:middle] for name in group.names}
        trial = yield from trials.measure(names, why=f"the loudest {pluralize(len(names), 'node')}")
        if goals.missed(trial.verification):
            missing = middle
        else:
            meeting = middle
    chosen = set(order[:meeting])
    raised = [group for group in groups.groups if group in chosen]
    return frozenset(name for group in raised for name in group.names), raised


def loudest_splittable(groups: Groups, bearable: Noise) -> UnitGroup | None:
    """Return the group with the most noise; None if single nodes already account for nearly all noise.

    Args:
        groups: The groups.
        bearable: Tolerable noise of each output, relative to which noise is measured; see `UnitGroup.worst`.
    """
    shares = {group: group.worst(bearable) for group in groups.groups}
    everything = sum(shares.values()) or 1.0
    loud = {group: share / everything for group, share in shares.items() if group.cuts}
    if sum(loud.values()) < _REST:
        return None
    loudest = max(loud, key=lambda group: loud[group])
    return loudest if loud[loudest] > _AUDIBLE else None


def _costly(groups: Groups, allowed: Noise) -> UnitGroup | None:
    """Return the costliest splittable group among those to raise."""
    total = sum(group.work for group in groups.groups)
    raised = select_groups(groups, allowed)
    large = [group for group in raised if group.cuts and group.work > _WORTH * total]
    return max(large, key=lambda group: group.work, default=None)


def _tightened(trial: AccuracyTrial, goals: Goals) -> float:
    """Return the factor for the allowed noise after a miss: in proportion to the excess, within bounds."""
    return min(0.6, max(0.1, min((shortfall(goals, output) for output in trial.verification.outputs), default=1.0)))
