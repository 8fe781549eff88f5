"""Search that raises precision until a request meets its accuracy goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.text import pluralize
from dovetail_runtime.data.data_split import ENOUGH, Use

from dovetail_verify.accuracy.baseline import measure_baseline
from dovetail_verify.accuracy.goals import record
from dovetail_verify.accuracy.search import cheapest
from dovetail_verify.accuracy.trials import low_nodes

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel
    from dovetail_runtime.data.data_split import DataSplit
    from dovetail_runtime.engines import GuardedEngine

    from dovetail_verify.accuracy.goals import Goals, Miss
    from dovetail_verify.accuracy.trials import AccuracyTrial, AccuracyTrials

    Engines = Mapping[str, Sequence[GuardedEngine]]


_SHOWN = 6  # nodes named in a message
_TIGHTER = 6.0  # dB to tighten the goal by if the held-out data misses it


@dataclass(frozen=True)
class Limits:
    """How long a search may take.

    Attributes:
        first: Runs before it stops splitting groups.
        most: Runs of both searches; validation and recompilation take a few more.
    """

    first: int
    most: int


EXHAUSTIVE = Limits(26, 34)
"""Those of a goal; a search for one takes fewer than 40 runs."""


@dataclass(frozen=True)
class Raised:
    """Outcome of a search for accuracy goals.

    Attributes:
        compiled: A result that meets the goals, or else the most accurate one.
        failure: Why the goals are missed; None if they are met.
    """

    compiled: CompiledModel
    failure: DovetailError | None = None


def meet_goals(
    trials: AccuracyTrials,
    request: Request,
    goals: Goals,
    engines: Engines,
    split: DataSplit,
    instead: Callable[[CompiledModel], Raised | None] | None = None,
    limits: Limits = EXHAUSTIVE,
) -> Raised:
    """Compile a request so that it meets its goals, raising as little as possible.

    Args:
        trials: Compiles the request with nodes raised, on the data that calibrates.
        request: The request.
        goals: Goals for every float output.
        engines: The host's engines, for the run over single nodes.
        split: The data in parts; the search sees one of them, and another one judges.
        instead: Called with the result if it misses the goals with nothing raised, before a search: returns another
            result that is better than any that the search may find, or None.
        limits: How long the search may take.

    Raises:
        DovetailError: The request cannot be compiled or run, or has no output that the goals apply to.
    """
    first = trials.over(split.part(Use.SEARCH), split.others)
    final = trials.over(split.part(Use.JUDGMENT))
    seen = first.run(())
    low = final.judged(seen)
    if not goals.missed(seen.verification) and not goals.missed(low.verification):
        return Raised(record(low, low, goals, final.runs, split))
    if instead is not None and (other := instead(low.result)) is not None:
        return other
    aim = goals.tightened(_spread(trials, split, seen))
    low, seen = replace(low, compiled=None), replace(seen, compiled=None)
    search = trials.over(split.part(Use.SEARCH), split.others, searching=True)
    baseline = measure_baseline(search, request, engines)
    groups = baseline.groups

    def runs() -> int:
        return first.runs + search.runs + final.runs

    if goals.missed(baseline.high.verification):
        # What raising makes no better may still be good enough as it is.
        if not goals.missed(baseline.low.verification) and not goals.missed((trial := final.run(())).verification):
            return Raised(record(trial, low, goals, runs(), split))
        trial = final.run(baseline.high.raised)
        # The figures of the result count, and what judges it may be easier than what the search saw.
        missed = goals.missed(trial.verification) or [
            replace(miss, figure=f"{miss.figure} on the data of the search")
            for miss in goals.missed(baseline.high.verification)
        ]
        compiled = record(trial, low, goals, runs(), split, groups, groups.groups, missed)
        return Raised(compiled, _unreachable(compiled, missed, baseline.locked))
    units = sum(len(group.units) for group in groups.groups)
    for wanted, most in ((aim, limits.first), (aim.tightened(_TIGHTER), limits.most)):
        if wanted.missed(baseline.high.verification) or search.runs >= most:
            break
        refining = min(search.runs + 2 * units.bit_length() + 4, most // 2)
        raised, chosen = cheapest(search, groups, wanted, baseline.low, refining, most=most)
        raised, lowered = search.with_low_nodes(raised, wanted)
        if lowered:
            chosen = [group for group in groups.groups if raised.issuperset(group.names)]
        trial = final.run(raised, lowered)
        # The held-out data decides at most twice, and only between selections made without it.
        if not goals.missed(trial.verification):
            return Raised(record(trial, low, goals, runs(), split, groups, chosen))
    trial = final.run(baseline.high.raised)
    compiled = record(trial, low, goals, runs(), split, groups, groups.groups)
    if not goals.missed(trial.verification):
        return Raised(compiled)
    return Raised(compiled, _unreachable(compiled, goals.missed(trial.verification), baseline.locked))


def _spread(trials: AccuracyTrials, split: DataSplit, seen: AccuracyTrial) -> float:
    """Return the decibels by which samples differ, which a search on too few of them does not notice.

    A search on more rates what it finds by what as many samples as judge are likely to reach.
    """
    if split.uses.count(Use.SEARCH) >= ENOUGH or not split.judged:
        return 0.0
    more = trials.over(split.part(Use.CALIBRATION, Use.SEARCH)).judged(seen)
    return min(more.verification.spread_db, _TIGHTER)


def _unreachable(compiled: CompiledModel, misses: Sequence[Miss], locked: Mapping[str, str]) -> DovetailError:
    missed = "; ".join(map(str, misses[:_SHOWN]))
    if locked:
        names = list(locked)
        kept = _listed(names)
        reasons = ", ".join(list(dict.fromkeys(locked.values()))[:_SHOWN])
        return DovetailError(
            f"the goal is not met: {missed}, with everything raised that may be; "
            f"{pluralize(len(names), 'node')} may not ({kept}): {reasons}",
            "take that back, narrow it, or lower the goal",
        )
    if low := low_nodes(compiled.plan):
        formats = ", ".join(list(dict.fromkeys(low.values()))[:_SHOWN])
        return DovetailError(
            f"the goal is not met: {missed}, with everything raised that can be; {pluralize(len(low), 'node')} "
            f"({_listed(list(low))}) cannot, in {formats}",
            f"`dovetail explain` says why of each: '{next(iter(low))}'; place them elsewhere, or lower the goal",
        )
    return DovetailError(
        f"the goal is not met: {missed}, although every node is computed in the types of the source model",
        "these engines compute sums in another order; lower the goal",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
