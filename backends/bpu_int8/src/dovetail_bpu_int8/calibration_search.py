"""Choosing an observer as the vendor's tool does: the one whose outputs are most like the original's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, cast

from dovetail.compiler import Driver
from dovetail.passes import OBSERVER, BackendChoice, Context
from dovetail.planning import Remark

if TYPE_CHECKING:
    from dovetail.compiler import CompiledModel
    from dovetail.passes import Request
    from dovetail.planning import ObserverChoice
    from dovetail.plugin import CompileJob
    from dovetail_verify.compare import Run


CANDIDATES = (
    {OBSERVER: "minmax"},
    {OBSERVER: "percentile", f"{OBSERVER}.percentile": "99.995"},
    {OBSERVER: "kl"},
)
"""Options of the backend: what the vendor calls max, max with 0.99995, and kl."""

_BACKEND = "bpu-int8"
_FLOATS = {"arithmetic": "floats"}  # Q/DQ rounds as integers do, and takes a third of the time to compile
_BATCHES = 32


def wants_search(job: CompileJob) -> bool:
    """Whether a compilation calibrates on the BPU, and nobody chose an observer for it."""
    choice = _choice(job.request)
    return choice is not None and choice.observer is None and job.request.data is not None and job.request.plan is None


def best_request(job: CompileJob) -> tuple[Request, dict[str, float]]:
    """The request with the best observer, and the cosine similarity of the worst output by each.

    The model is calibrated with every candidate on all data and compared with the original on the first 32 batches,
    before its biases are corrected or its weights rounded, which would take longer than everything else and leaves
    scales as they are. The request stays as it is if nothing is quantized, or if no output is a float.

    Source: `calibration_type: default` of hb_mapper, which looks at the first sample; one alone decides by chance.

    Raises:
        DovetailError: The model cannot be compiled.
    """
    from dovetail_quantize.parameters import compare_observers
    from dovetail_verify.accuracy.trials import Remembered
    from dovetail_verify.runners import reference

    found: dict[str, float] = {}
    requests: dict[str, Request] = {}
    original = Remembered(reference(job.original, job.ctx))
    compare_observers(job.ctx, [_observer(_with(job.request, options)) for options in CANDIDATES])
    for number, options in enumerate(CANDIDATES, start=1):
        if job.progress:
            job.progress("choose an observer", number, len(CANDIDATES))
        request = _with(job.request, options)
        name = str(_observer(request))
        cosine = _cosine(job, _only_scaled(_with(request, _FLOATS)), original)
        if cosine is None:
            return job.request, {}
        found[name], requests[name] = cosine, request
    best = max(found, key=found.__getitem__)
    return requests[best], found


def remark_of(compiled: CompiledModel, found: dict[str, float]) -> None:
    """Say in the plan of a result which observer was chosen, and by what."""
    if not found:
        return
    ordered = sorted(found.items(), key=lambda item: -item[1])
    figures = ", ".join(f"{name} {cosine:.6f}" for name, cosine in ordered)
    why = f"calibrated with {ordered[0][0]}: cosine similarity of the worst output on the first batches: {figures}"
    chosen = f"--backend {_BACKEND}:{OBSERVER}=NAME chooses one"
    compiled.plan.remarks.append(Remark("analysis", "", "calibration", "observer", why, advice=chosen))


def _choice(request: Request) -> BackendChoice | None:
    return next((one for one in request.backends if one.name == _BACKEND), None)


def _observer(request: Request) -> ObserverChoice:
    """The observer that one of the candidates has chosen."""
    return cast("ObserverChoice", cast("BackendChoice", _choice(request)).observer)


def _with(request: Request, options: dict[str, str]) -> Request:
    return replace(
        request,
        backends=tuple(
            replace(choice, options={**choice.options, **options}) if choice.name == _BACKEND else choice
            for choice in request.backends
        ),
    )


def _only_scaled(request: Request) -> Request:
    """The request without those refinements that follow calibration."""
    from dovetail_quantize.refining.steps import OPTION, SCALING

    steps = [step for step in request.options.get(OPTION, {}).get("steps", ()) if step in SCALING]
    return replace(request, options={**request.options, OPTION: {"steps": steps}})


def _cosine(job: CompileJob, request: Request, original: Run) -> float | None:
    """The cosine similarity of the worst output, on average; None if it says nothing about the observer."""
    from dovetail_runtime.data.batches import batches
    from dovetail_verify.compare import verify
    from dovetail_verify.runners import runner

    ctx = Context(request, plugins=job.ctx.plugins)
    ctx.load_backends()
    ctx.try_engines = ctx.files_wanted = False
    ctx.measured = job.ctx.measured
    compiled = Driver(job.original, ctx, job.passes).compile()
    if not any(_calibrated(held) for held in compiled.plan.values.values()):
        return None
    found: list[float] = []
    run = runner(compiled)
    for feeds, _ in islice(batches(job.original, request.data, compiled.model), _BATCHES):
        outputs = verify(job.original, original, run, feeds, made=compiled.model).outputs
        cosines = [0.0 if output.broken else output.cosine for output in outputs if output.cosine is not None]
        if not cosines:
            return None
        found.append(min(cosines))
    return sum(found) / len(found) if found else None


def _calibrated(held: Sequence[dict[str, object]]) -> bool:
    return any("batch" in str(one.get("source", "")) for one in held)
