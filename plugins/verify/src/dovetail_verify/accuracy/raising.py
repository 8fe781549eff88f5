"""Search that raises precision until a request meets its accuracy goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.text import pluralize
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.independent_rows import inputs_of_samples, why_rows_stay_together

from dovetail_verify.accuracy.baseline import measure_baseline
from dovetail_verify.accuracy.goals import record
from dovetail_verify.accuracy.search import cheapest

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel
    from dovetail_runtime.data.batches import Batch
    from dovetail_runtime.data.independent_rows import Run
    from dovetail_runtime.engines import GuardedEngine

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.accuracy.trials import Trial, Trials

    Engines = Mapping[str, Sequence[GuardedEngine]]


_EVERY = 3  # of this many batches, the last one is held out
_LEAST = 6  # fewest rows of a single batch to split
_PROBED = 64  # rows that test whether rows may be split

Batches = Callable[[], Iterator[dict[str, Any]]]


@dataclass(frozen=True)
class Parts:
    """Data split for search and validation.

    Attributes:
        search: Data that the search sees.
        held: Held-out data; None if the data cannot be split.
        text: Description of the held-out data, or why there is none.
    """

    search: object
    held: Batches | None
    text: str


def parts_of(original: Model, data: object, made: Model, run: Run) -> Parts:
    """Hold out every third batch, the last of two, or every third row of one; deterministic for the same data.

    Args:
        original: The model.
        data: See `dovetail_runtime.data.sources.read_data`.
        made: A result; its shapes may be static where the original's are open.
        run: Runs the original.

    Raises:
        DovetailError: The data does not match the model.
    """

    def read() -> Iterator[Batch]:
        return batches(original, data, made, run)

    number = sum(1 for _ in read())
    if number > 1:
        held = set(range(_EVERY - 1, number, _EVERY)) or {number - 1}

        def part(is_held: bool) -> Batches:
            return lambda: (_arrays(*one) for index, one in enumerate(read()) if (index in held) == is_held)

        text = f"accuracy is that of {len(held)} of {number} batches, which the search for the goal did not see"
        return Parts(part(False), part(True), text)
    return _divided_rows(original, data, made, run, read)


def _divided_rows(original: Model, data: object, made: Model, run: Run, read: Callable[[], Iterator[Batch]]) -> Parts:
    open_ = {v.name for v in made.graph.inputs if v.shape and not isinstance(v.shape[0], int)}
    names = inputs_of_samples(original) & open_
    feeds, labels = next(read(), ({}, {}))
    lengths = {len(feeds[name]) for name in names if name in feeds}
    whole = "accuracy is that of the data which the search for the goal saw, since nothing could be held back: "
    if len(lengths) != 1 or min(lengths) < _LEAST:
        return Parts(data, None, f"{whole}it is one batch; give more files or samples")
    (rows,) = lengths
    if why := why_rows_stay_together(original, feeds, names, min(rows, _PROBED), run):
        return Parts(data, None, f"{whole}{why}; give more files")

    def part(is_held: bool) -> Batches:
        chosen = [row for row in range(rows) if (row % _EVERY == _EVERY - 1) == is_held]
        divided = {name: array[chosen] if name in names else array for name, array in feeds.items()}
        truth = {name: array[chosen] if len(array) == rows else array for name, array in labels.items()}
        return lambda: iter([_arrays(divided, truth)])

    held = rows // _EVERY
    text = f"accuracy is that of {held} of {pluralize(rows, 'row')}, which the search for the goal did not see"
    return Parts(part(False), part(True), text)


def _arrays(feeds: dict[str, Any], labels: dict[str, Any]) -> dict[str, Any]:
    """Merge inputs and labels of a batch into the form of input data."""
    return {**feeds, **{f"labels:{name}" if name else "labels": array for name, array in labels.items()}}


_SHOWN = 6  # nodes named in a message
_FIRST_RUNS = 26  # runs before a search stops splitting groups
_MOST_RUNS = 34  # runs of both searches; together with validation and recompilation, fewer than 40
_TIGHTER = 6.0  # dB to tighten the goal by if the held-out data misses it


@dataclass(frozen=True)
class Raised:
    """Outcome of a search for accuracy goals.

    Attributes:
        compiled: A result that meets the goals, or else the most accurate one.
        failure: Why the goals are missed; None if they are met.
    """

    compiled: CompiledModel
    failure: DovetailError | None = None


def meet_goals(trials: Trials, request: Request, goals: Goals, engines: Engines) -> Raised:
    """Compile a request so that it meets its goals, raising as little as possible.

    Args:
        trials: Compiles and runs the request with nodes raised.
        request: The request.
        goals: Goals for every float output.
        engines: The host's engines, for the run over single nodes.

    Raises:
        DovetailError: The request cannot be compiled or run, or has no output that the goals apply to.
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
        # What raising makes no better may still be good enough as it is.
        if not goals.missed(baseline.low.verification) and not goals.missed((trial := final.run(())).verification):
            return Raised(record(trial, low, goals, runs(), measured_on=parts.text))
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
        # The held-out data decides at most twice, and only between selections made without it.
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
