"""The time of a result in integers, or in low floats for a goal, beside that of floats on this machine."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import BackendChoice
from dovetail.planning import HOST
from dovetail.plugin.loading import load_chosen, make_engine
from dovetail_runtime.data.batches import batches

from dovetail_verify.accuracy.trials import low_nodes
from dovetail_verify.runners import runner, weights_within

if TYPE_CHECKING:
    import numpy as np
    from dovetail.passes import Request
    from dovetail.plugin import Backend, CompiledModel, CompileJob

    Feeds = Mapping[str, np.ndarray]
    Run = Callable[[Feeds], Mapping[str, object]]

_SECONDS = 1.0  # of a comparison, if its runs are short
_FEWEST, _MOST = 6, 50  # rounds
_LONGEST = 10.0  # seconds; fewer rounds are run where one takes that long
_TURN = 0.01  # seconds of runs of a turn, of which the fastest counts
_CLEAR = 0.03  # relative; processes that run the same model differ by nearly as much
_USUAL = 0.75  # share of the turns in which one is slower
_KEPT_WEIGHTS = 1 << 28  # bytes; results of a larger model are compiled anew for each comparison


@dataclass(frozen=True)
class Comparison:
    """Seconds of runs that took turns.

    Attributes:
        times: By name, a time per round; that of the result is the empty string.
    """

    times: Mapping[str, list[float]]

    def ratio(self, name: str, to: str = "") -> float:
        """Return the median of the ratios of one's time to another's."""
        return statistics.median(one / other for one, other in zip(self.times[name], self.times[to]))

    def milliseconds(self, name: str = "") -> float:
        """Return the median of the times."""
        return 1e3 * statistics.median(self.times[name])

    def fastest(self, names: Collection[str] | None = None) -> str:
        """Return the fastest floats: of all, or of those that are named; empty if none of these was run."""
        among = [name for name in self.times if name and (names is None or name in names)]
        return min(among, key=lambda name: statistics.median(self.times[name]), default="")

    def slower(self, name: str, to: str) -> bool:
        """Check whether one is slower than another beyond what two processes with the same model differ by."""
        pairs = [one / other for one, other in zip(self.times[name], self.times[to])]
        # Other work on the machine adds time to some runs, so the fastest ones must differ, too.
        fastest = min(self.times[name]) / min(self.times[to])
        usual = sum(pair > 1 for pair in pairs) >= _USUAL * len(pairs)
        return min(fastest, statistics.median(pairs)) > 1 + _CLEAR and usual

    def text(self, left_out: Collection[str] = ()) -> str:
        """Say whether the result, which has integers, is faster than floats.

        Args:
            left_out: Floats that are no choice, because they miss the goal; empty if all of them miss it.
        """
        fastest = self.fastest([name for name in self.times if name not in left_out])
        if not fastest:
            return ""
        ratio, floats = self.ratio("", fastest), described(fastest)
        if self.slower("", fastest):
            way = "`dovetail tune` finds the fastest plan within a goal"
            if fastest != HOST and " " not in fastest:
                way = f"`--backend {fastest}` alone is faster, and {way}"
            taken = f"this result takes {ratio:.2f} of the time of {floats}, the fastest here"
            return f"integers do not pay here: {taken}; {way}"
        if ratio < 1 - _CLEAR:
            return f"this result takes {ratio:.2f} of the time of {floats}, the fastest here"
        if ratio > 1 + _CLEAR:
            return f"this result takes about as long as {floats}, the fastest here; times differ too much to tell"
        return f"integers make this result no faster here: it takes as long as {floats}, the fastest here"

    def text_of_floats(self, others: Collection[str]) -> str:
        """Say whether the result, which has low floats, is faster than others; empty if none of these was run.

        Args:
            others: Names of floats that are accurate enough.
        """
        fastest = self.fastest(others)
        if not fastest:
            return ""
        return f"this result takes {self.ratio('', fastest):.2f} of the time of {described(fastest)}"


def described(name: str) -> str:
    """Return what floats are called in a sentence."""
    return "floats on the host" if name == HOST else f"floats in {name}"


class FloatRivals:
    """Floats of a model on this machine, which results of a compilation are timed beside.

    They are the source on the host, the result of every installed backend without integers that runs on the host's
    device, and what the request itself allows.

    Args:
        job: The compilation; its request has data, whose first input is run.
        allowed: Requests without integers in the formats of the job's request, by name.

    Attributes:
        allowed: See `allowed`.
    """

    def __init__(self, job: CompileJob, allowed: Mapping[str, Request]):
        self._job, self.allowed = job, allowed
        self._runs: dict[str, Run] = {}
        self._kept = weights_within(job.original, _KEPT_WEIGHTS)

    def compared(self, compiled: CompiledModel, beside: Mapping[str, CompiledModel] | None = None) -> Comparison | None:
        """Time a result in turns with the floats; None if its times here say nothing, or it has none to compare with.

        Args:
            compiled: The result: with integers, or with low floats that are compared for a goal.
            beside: More results that have turns, by name.

        Raises:
            DovetailError: The result cannot be run.
        """
        job = self._job
        feeds, _ = next(batches(job.original, job.request.data, compiled.model))
        runs = self._runs or self._loaded()
        if self._kept:
            self._runs = runs
        more = {name: runner(other) for name, other in (beside or {}).items()}
        return Comparison(_times({"": runner(compiled), **runs, **more}, feeds)) if runs else None

    def _loaded(self) -> dict[str, Run]:
        """Compile everything in floats; what cannot run is left out, since it is no faster than what runs."""
        job = self._job
        runs: dict[str, Run] = {}
        requests = {HOST: _in_floats(job, HOST)}
        requests |= {name: _in_floats(job, name) for name in _float_backends(job)}
        for name, request in (requests | dict(self.allowed)).items():
            try:
                runs[name] = runner(_compiled(job, request))
            except DovetailError:
                continue
        return runs


def has_integers_here(job: CompileJob, compiled: CompiledModel) -> bool:
    """Check whether nodes are in integers, all of them on the host's device, whose times say something."""
    device = job.ctx.host.device
    integers = {backend.name: backend.device for backend in job.ctx.backends if backend.has_integers}
    used = {node.backend for node in compiled.plan.nodes if node.backend in integers}
    quantized = any(
        format_ is not None and format_.quantized
        for node in compiled.plan.nodes if node.backend in used
        for format_ in (node.precision, *node.ports.values())
    )  # fmt: skip
    return quantized and all(integers[name] == device for name in used)


def has_low_floats_here(job: CompileJob, compiled: CompiledModel) -> bool:
    """Check whether nodes are in 16-bit floats, and everything is on the host's device, whose times say something."""
    host = job.ctx.host.device
    devices = {backend.name: backend.device for backend in job.ctx.backends}
    return bool(low_nodes(compiled.plan)) and all(devices.get(n.backend, host) == host for n in compiled.plan.nodes)


def _float_backends(job: CompileJob) -> Iterator[str]:
    """Yield the installed backends without integers that run on the host's device."""
    registry, host = job.ctx.registry, job.ctx.host
    for name in registry.backend:
        if name == HOST:
            continue
        try:
            backend = load_chosen(registry, BackendChoice(name))
            if not backend.has_integers and backend.device == host.device and _runs_here(backend, job):
                yield name
        except (DovetailError, ImportError):
            continue


def _runs_here(backend: Backend, job: CompileJob) -> bool:
    engines = (make_engine(job.ctx.registry, name) for name in backend.engines)
    return any(engine.available()[0] for engine in engines)


def _in_floats(job: CompileJob, backend: str) -> Request:
    """Return a request for a backend in floats, or for the host alone, in the shapes of the job's."""
    return replace(
        job.request, backends=() if backend == HOST else (BackendChoice(backend),), strategy=None, data=None, plan=None,
        pins=(), pin_origins={}, low=(), high=(),
        options={name: value for name, value in job.request.options.items() if name == "fix-shapes"},
    )  # fmt: skip


def _compiled(job: CompileJob, request: Request) -> CompiledModel:
    """Compile the source without data, which times of floats do not need."""
    from dovetail.compiler import Driver
    from dovetail.passes import Context

    ctx = Context(replace(request, data=None), plugins=job.ctx.plugins)
    ctx.load_backends()
    return Driver(job.original, ctx).compile()


def _times(runs: Mapping[str, Run], feeds: Feeds) -> dict[str, list[float]]:
    """Run everything in turns, after a run that does not count; return the seconds of the fastest run of each turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    begun = time.perf_counter()
    for number in range(_MOST):
        for name in runs if number % 2 else reversed(list(runs)):
            runs[name](feeds)
            least, turn = math.inf, time.perf_counter()
            while (start := time.perf_counter()) - turn < _TURN:
                runs[name](feeds)
                least = min(least, time.perf_counter() - start)
            times[name].append(least)
        taken = time.perf_counter() - begun
        if taken > _LONGEST or taken > _SECONDS and number + 1 >= _FEWEST:
            break
    return times
