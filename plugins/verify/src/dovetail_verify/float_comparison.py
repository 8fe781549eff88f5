"""The time of a result in integers beside that of floats in the fastest engine of this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import BackendChoice
from dovetail.planning import HOST
from dovetail.plugin.loading import load_chosen, make_engine
from dovetail_runtime.data.batches import batches

from dovetail_verify.runners import runner

if TYPE_CHECKING:
    import numpy as np
    from dovetail.plugin import Backend, CompiledModel, CompileJob

    Feeds = Mapping[str, np.ndarray]
    Run = Callable[[Feeds], Mapping[str, object]]

_SECONDS = 1.0  # of a comparison, if its runs are short
_FEWEST, _MOST = 5, 50  # rounds
_LONGEST = 10.0  # seconds; fewer rounds are run where one takes that long
_CLEAR = 0.03  # relative; processes that run the same model differ by nearly as much


def compared_with_floats(job: CompileJob, compiled: CompiledModel, data: object) -> str:
    """Say whether a result with integers is faster than floats here; empty without integers, or without an engine here.

    The floats are the source on the host, and the result of every installed backend without integers that runs on the
    host's device. All have turns on one input.

    Args:
        job: The compilation.
        compiled: The result.
        data: Data with the input.
    """
    if not _has_integers_here(job, compiled):
        return ""
    feeds, _ = next(batches(job.original, data, compiled.model))
    runs: dict[str, Run] = {"": runner(compiled)}
    for name in (HOST, *_float_backends(job)):
        try:
            runs[name] = runner(_in_floats(job, name))
        except DovetailError:
            continue  # it is no faster than what runs
    if len(runs) < 2:
        return ""
    times = _times(runs, feeds)
    fastest = min((name for name in times if name), key=lambda name: statistics.median(times[name]))
    pairs = [ours / theirs for ours, theirs in zip(times[""], times[fastest])]
    ratio = statistics.median(pairs)
    floats = f"floats in {fastest}" if fastest != HOST else "floats on the host"
    if ratio > 1 + _CLEAR:
        way = "`dovetail tune` finds the fastest plan within a goal"
        if fastest != HOST:
            way = f"`--backend {fastest}` alone is faster, and {way}"
        taken = f"this result takes {ratio:.2f} of the time of {floats}, the fastest here"
        return f"integers do not pay here: {taken}; {way}"
    if ratio < 1 - _CLEAR:
        return f"this result takes {ratio:.2f} of the time of {floats}, the fastest here"
    return f"integers make this result no faster here: it takes as long as {floats}, the fastest here"


def _has_integers_here(job: CompileJob, compiled: CompiledModel) -> bool:
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


def _in_floats(job: CompileJob, backend: str) -> CompiledModel:
    """Compile the source for a backend in floats, or for the host alone, in the shapes of the request."""
    from dovetail.compiler import Driver
    from dovetail.passes import Context

    request = replace(
        job.request, backends=() if backend == HOST else (BackendChoice(backend),), data=None, plan=None,
        pins=(), pin_origins={}, low=(), high=(),
        options={name: value for name, value in job.request.options.items() if name == "fix-shapes"},
    )  # fmt: skip
    ctx = Context(request, plugins=job.ctx.plugins)
    ctx.load_backends()
    return Driver(job.original, ctx).compile()


def _times(runs: Mapping[str, Run], feeds: Feeds) -> dict[str, list[float]]:
    """Run everything in turns, each time after a run that does not count; return the seconds of each round."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    begun = time.perf_counter()
    for number in range(_MOST):
        for name in runs if number % 2 else reversed(list(runs)):
            runs[name](feeds)
            start = time.perf_counter()
            runs[name](feeds)
            times[name].append(time.perf_counter() - start)
        taken = time.perf_counter() - begun
        if taken > _LONGEST or taken > _SECONDS and number + 1 >= _FEWEST:
            break
    return times
