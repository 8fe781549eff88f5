"""Raising precision until a request meets its accuracy goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.text import pluralize

from dovetail_verify.accuracy.baseline import measure_baseline
from dovetail_verify.accuracy.held_back import parts_of
from dovetail_verify.accuracy.record import record
from dovetail_verify.accuracy.search import cheapest

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel
    from dovetail.passes.request import Request
    from dovetail_runtime.guard import GuardedEngine

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.accuracy.trials import Trial, Trials

    Engines = Mapping[str, Sequence[GuardedEngine]]


_SHOWN = 6  # nodes in a message
_FIRST_RUNS = 26  # of a search
_MOST_RUNS = 34  # of both searches; with the runs on other data and what is compiled again, fewer than 40
_TIGHTER = 6.0  # dB that are asked for in addition where what was held back misses the goal


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
    if not goals.missed(low.verification) and not goals.missed(
        replace(low.verification, outputs=low.verification.cautious)
    ):
        return Raised(record(low, low, goals, trials.runs))
    parts = parts_of(trials.original, trials.data, low.result.model, trials.reference)
    low = replace(low, compiled=None)
    search = trials.over(parts.search, cautious=True)
    final = trials.over(parts.held if parts.held is not None else parts.search)
    baseline = measure_baseline(search, request, engines)
    groups = baseline.groups

    def runs() -> int:
        return trials.runs + search.runs + final.runs

    if goals.missed(baseline.high.verification):
        trial = final.run(baseline.high.raised)
        high = record(trial, low, goals, runs(), groups, groups.groups, parts.text)
        return Raised(high, _unreachable(baseline.high, goals, baseline.locked))
    units = sum(len(group.units) for group in groups.groups)
    for wanted, most in ((goals, _FIRST_RUNS), (goals.tightened(_TIGHTER), _MOST_RUNS)):
        if wanted.missed(baseline.high.verification) or search.runs >= most:
            break
        refining = min(search.runs + 2 * units.bit_length() + 4, most // 2)
        raised, chosen = cheapest(search, groups, wanted, baseline.low, refining, most=most)
        trial = final.run(raised)
        # What is held back decides at most twice, between selections that were made without it.
        if not goals.missed(trial.verification):
            return Raised(record(trial, low, goals, runs(), groups, chosen, parts.text))
    trial = final.run(baseline.high.raised)
    compiled = record(trial, low, goals, runs(), groups, groups.groups, parts.text)
    return Raised(compiled, _unreachable(trial, goals, baseline.locked) if goals.missed(trial.verification) else None)


def _unreachable(high: Trial, goals: Goals, locked: Mapping[str, str]) -> DovetailError:
    missed = "; ".join(str(miss) for miss in goals.missed(high.verification)[:_SHOWN])
    if locked:
        names = list(locked)
        kept = ", ".join(f"'{name}'" for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        reasons = ", ".join(list(dict.fromkeys(locked.values()))[:_SHOWN])
        return DovetailError(
            f"the goal is not met: {missed}, with everything raised that may be; "
            f"{pluralize(len(names), 'node')} may not ({kept}): {reasons}",
            "take that back, narrow it, or lower the goal",
        )
    return DovetailError(
        f"the goal is not met: {missed}, although every node is computed in the types of the source model",
        "these engines compute sums in another order; lower the goal",
    )
