"""The verdict over the last race: which plan wins, and from which others the race cannot tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail_tune.statistics_of_pairs import MARGIN, Ratio

if TYPE_CHECKING:
    from dovetail_tune.outcome import TunedCandidate
    from dovetail_tune.race import RaceResult


def winner_of(raced: Sequence[TunedCandidate], result: RaceResult) -> TunedCandidate:
    """Return the fastest entry; a mixed plan must be clearly faster than every other one, in several measurements.

    The baseline, which is exact, wins where nothing is faster by more than two of its own processes may differ.
    """
    base = raced[0].candidate.name
    ordered = sorted(raced, key=lambda e: result.ratio(e.candidate.name, base).median)
    for entry in raced:
        if entry.candidate.is_baseline and _ratio(entry, ordered[0], result).median <= 1 + MARGIN:
            return entry
    for position, entry in enumerate(ordered):
        rest = [other for other in ordered[position + 1 :] if not other.candidate.is_mixed]
        if not entry.candidate.is_mixed:
            return entry
        # One measurement may owe its lead to where the memory of its processes lies.
        if len(result.measurements) > 1 and all(_ratio(other, entry, result).low > 1 + MARGIN for other in rest):
            return entry
    return ordered[0]


def winner_of_comparisons(entries: Sequence[TunedCandidate]) -> TunedCandidate | None:
    """Return the fastest of the entries that meet the goals by their comparisons with the baseline alone.

    None if there is none. A mixed plan needs a race.
    """
    timed = [e for e in entries if e.against is not None and not e.candidate.is_mixed]
    best = min(timed, key=lambda e: e.against.median if e.against else 1.0, default=None)
    base = next((e for e in entries if e.candidate.is_baseline), None)
    is_faster = best is not None and best.against is not None and best.against.median < 1 - MARGIN
    return best if is_faster or base is None else base


def doubts_of(winner: TunedCandidate, raced: Sequence[TunedCandidate], result: RaceResult) -> list[str]:
    """Say which others the race cannot tell from the winner."""
    found = []
    for other in raced:
        ratio = _ratio(other, winner, result)
        if other is winner or ratio.is_clear:
            continue
        if ratio.low > 1 - MARGIN and ratio.high < 1 + MARGIN:
            found.append(f"{other.candidate.name} is as fast: it takes {ratio} of the time")
        else:
            name = other.candidate.name
            found.append(
                f"timings are too noisy to tell {name} from {winner.candidate.name}: it takes {ratio} of its time"
            )
    return found


def _ratio(entry: TunedCandidate, other: TunedCandidate, result: RaceResult) -> Ratio:
    return result.ratio(entry.candidate.name, other.candidate.name)
