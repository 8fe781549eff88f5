"""Which groups to raise: those that make the most noise for the least work, until what is left is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from dovetail_verify.accuracy.trials import BROKEN, Noise, noise_of

if TYPE_CHECKING:
    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.accuracy.groups import Group, Groups
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
