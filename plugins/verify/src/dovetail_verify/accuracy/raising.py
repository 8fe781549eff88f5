"""Search that raises precision until a request meets its accuracy goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
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
    from dovetail.plugin import CompiledModel, Measure, Steps
    from dovetail_runtime.data.data_split import DataSplit
    from dovetail_runtime.engines import GuardedEngine

    from dovetail_verify.accuracy.goals import Goals, Miss
    from dovetail_verify.accuracy.groups import Groups, UnitGroup
    from dovetail_verify.accuracy.trials import AccuracyTrial, AccuracyTrials
    from dovetail_verify.compare import OutputVerification

    Engines = Mapping[str, Sequence[GuardedEngine]]


_NOTHING: Mapping[str, str] = MappingProxyType({})
_SHOWN = 6  # nodes named in a message
_TIGHTER = 6.0  # dB to tighten the goal by if the held-out data misses it
_RUNS = 26, 34  # of the first search, and of both; validation and recompilation take a few more
_OF_ENGINES = 0.5  # dB by which an engine may differ from the arithmetic of the plan that the search runs


@dataclass(frozen=True)
class Raised:
    """Outcome of a search for accuracy goals.

    Attributes:
        compiled: A result that meets the goals, or else the most accurate one.
        failure: Why the goals are missed; None if they are met.
        planned: Whether the arithmetic of the plan meets them, whatever the engines compute.
    """

    compiled: CompiledModel
    failure: DovetailError | None = None
    planned: bool = True


def meet_goals(
    trials: AccuracyTrials,
    request: Request,
    goals: Goals,
    engines: Engines,
    split: DataSplit,
    judging: Measure | None = None,
) -> Steps[Raised]:
    """Compile a request so that it meets its goals, raising as little as possible.

    Nodes are chosen by the arithmetic of the plan, which is that of every machine; whether the result meets the goals
    is judged by what its engines compute, where there are any.

    Args:
        trials: Trials of the request with nodes raised.
        request: The request.
        goals: Goals for every float output.
        engines: The host's engines, for the run over single nodes.
        split: The data in parts; the search sees one of them, and another one judges.
        judging: Compares what the engines compute with the original, on the part that judges; None without engines.

    Raises:
        DovetailError: The request cannot be compiled or run, or has no output that the goals apply to.
    """
    first = trials.over(split.part(Use.SEARCH), split.others)
    final = trials.over(split.part(Use.JUDGMENT))
    seen = yield from first.run((), why="the request as it is, on the samples of the search")
    low = yield from final.run((), why="the request as it is, on the samples that judge")
    spread = yield from _spread(trials, split)
    safe, aim = goals.tightened(_OF_ENGINES), goals.tightened(max(spread, _OF_ENGINES))
    counted = [first, final]

    def judged(
        trial: AccuracyTrial, chosen: Sequence[UnitGroup] = (), groups: Groups | None = None,
        missed: Sequence[Miss] | None = None, locked: Mapping[str, str] = _NOTHING,
    ) -> Steps[Raised]:  # fmt: skip
        measured = trial.verification
        if judging is not None:
            measured = (yield trials.proposed(trial, "judged by the engines here", judging)).figure
        missed = missed and (goals.missed(measured) or missed)
        runs = sum(one.runs for one in counted)
        compiled = record(trial, low, goals, runs, split, groups, chosen, missed, measured)
        if not measured.missed:
            return Raised(compiled)
        planned = not goals.missed(trial.verification) and not missed
        if planned and low_nodes(compiled.plan):
            return Raised(compiled, _of_engines(measured.missed, trial.verification))
        return Raised(compiled, _unreachable(compiled, measured.missed, locked), planned)

    if not safe.missed(seen.verification) and not safe.missed(low.verification):
        return (yield from judged(low))
    low, seen = replace(low, compiled=None), replace(seen, compiled=None)
    search = trials.over(split.part(Use.SEARCH), split.others, is_search=True)
    counted.append(search)
    baseline = yield from measure_baseline(search, request, engines)
    groups = baseline.groups
    # What raising makes no better may still be good enough as it is.
    helps_not = aim.missed(baseline.high.verification) and not goals.missed(baseline.low.verification)
    if helps_not and not goals.missed(low.verification):
        return (yield from judged((yield from final.run(()))))
    units = sum(len(group.units) for group in groups.groups)
    for wanted, most in zip((aim, aim.tightened(_TIGHTER)), _RUNS):
        if wanted.missed(baseline.high.verification) or search.runs >= most:
            break
        refining = min(search.runs + 2 * units.bit_length() + 4, most // 2)
        raised, chosen = yield from cheapest(search, groups, wanted, baseline.low, refining, most=most)
        raised, lowered = search.with_low_nodes(raised, wanted)
        if lowered:
            chosen = [group for group in groups.groups if raised.issuperset(group.names)]
        if final.knows(raised, lowered):
            continue  # it missed
        trial = yield from final.run(raised, lowered, "what the search found, on the samples that judge")
        # The held-out data decides at most twice, and only between selections made without it.
        if not safe.missed(trial.verification):
            return (yield from judged(trial, chosen, groups))
    trial = yield from final.run(baseline.high.raised, why="everything raised that may be, on the samples that judge")
    # The figures of the result count, and what judges it may be easier than what the search saw.
    seen_missing = [
        miss._replace(figure=f"{miss.figure} on the data of the search")
        for miss in goals.missed(baseline.high.verification)
    ]
    return (yield from judged(trial, groups.groups, groups, seen_missing or None, baseline.locked))


def _spread(trials: AccuracyTrials, split: DataSplit) -> Steps[float]:
    """Return the decibels by which samples differ, which a search on too few of them does not notice.

    A search on more rates what it finds by what as many samples as judge are likely to reach.
    """
    if split.uses.count(Use.SEARCH) >= ENOUGH or not split.judged:
        return 0.0
    more = yield from trials.over(split.part(Use.CALIBRATION, Use.SEARCH)).run((), why="by how much samples differ")
    return min(more.verification.spread_db, _TIGHTER)


def _of_engines(misses: Sequence[Miss], planned: OutputVerification) -> DovetailError:
    missed = "; ".join(map(str, misses[:_SHOWN]))
    return DovetailError(
        f"the goal is not met: {missed} on the engines here, and the arithmetic of the plan has {planned.worst}",
        "ask for more decibels, which raises more nodes; `dovetail tune` chooses by what the engines compute",
    )


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
