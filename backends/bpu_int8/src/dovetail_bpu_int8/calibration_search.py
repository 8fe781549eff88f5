"""Choosing an observer and a scheme as the vendor's tool does: those whose outputs are most like the original's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, cast

from dovetail.compiler import Driver
from dovetail.passes import OBSERVER, BackendChoice, Context
from dovetail.planning import Remark

from dovetail_bpu_int8.bpu_requests import OPTION
from dovetail_bpu_int8.vendor.calibration import ASYMMETRIC

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Request
    from dovetail.planning import ObserverChoice, QuantizedValue
    from dovetail.plugin import CompileJob
    from dovetail_verify import RunFunction


OBSERVERS = (
    {OBSERVER: "minmax"},
    {OBSERVER: "percentile", f"{OBSERVER}.percentile": "99.995"},
    {OBSERVER: "kl"},
)
"""Options of the backend that correspond to the vendor's max, max with 0.99995, and kl."""

_APART = OBSERVERS[1]  # with which models are decided: no weight of the backend's file has it

(_SCHEME,) = ASYMMETRIC
_OLDEST = "bernoulli2"

_BACKEND = "bpu-int8"
_FLOATS = {"arithmetic": "floats"}  # Q/DQ rounds as integers do, and takes a third of the time to compile
_BATCHES = 32
_WORSE = 1.1  # times the noise without refinements, above which they are left out: few samples are uncertain
_REFINED = 3  # candidates that are compared again, refined


def wants_search(job: CompileJob) -> bool:
    """Whether a compilation calibrates for the BPU, and no observer was chosen for it."""
    choice = _choice(job.request)
    return choice is not None and choice.observer is None and job.request.data is not None and job.request.plan is None


class Compared(NamedTuple):
    """Cosine similarity of the worst output by candidate; empty if none could be judged.

    Attributes:
        scaled: Of all candidates, before refinements that follow calibration.
        refined: Of the best of these, with the refinements; the best of all if there are none.
        names_refinements: Whether the request names its refinements, which are then applied in any case.
    """

    scaled: dict[str, float]
    refined: dict[str, float]
    names_refinements: bool = False

    @property
    def best(self) -> str:
        """The candidate with the least noise, as the geometric mean of both figures: few samples make each uncertain.

        The noise is 1 minus the cosine similarity.
        """
        return min(self.refined, key=lambda name: (1 - self.scaled[name]) * (1 - self.refined[name]))

    @property
    def refinements_cost(self) -> bool:
        """Whether the best candidate is clearly more accurate without its refinements, and may be left so."""
        scaled, refined = self.scaled[self.best], self.refined[self.best]
        return not self.names_refinements and 1 - refined > _WORSE * (1 - scaled)


def best_request(job: CompileJob) -> tuple[Request, Compared]:
    """The request with the best observer and scheme, and the comparison of the candidates.

    The model is calibrated with every candidate on a part of the data, and compared with the original on the first 32
    batches of another one, neither of which judges the result: first before its biases are corrected or its weights
    rounded, which takes longer than everything else, then the best three with these refinements, because clipped
    numbers shift means, and corrected biases restore them. Refinements that make the best one worse are left out,
    unless the request names them. The request stays as it is if nothing is quantized, or if no output is a float.

    Source: `calibration_type: default` of hb_mapper, which looks at the first sample; one alone decides by chance.
    Zero points are among the alternatives of its successor (`asymmetric: [true, false]`). They are left out if the
    option `activations` or a file of the vendor's tools decides, and on bernoulli2.

    Raises:
        DovetailError: The model cannot be compiled.
    """
    from dovetail_quantize import compare_observers
    from dovetail_verify import CachedOriginal, data_of_search, source_runner

    calibrating, comparing = data_of_search(job)
    job = replace(job, request=replace(job.request, data=calibrating))
    original = CachedOriginal(source_runner(job.original, job.ctx))
    compare_observers(job.ctx, [_observer(_with(job.request, options)) for options in OBSERVERS])
    requests = _candidates(job.request)
    first = len(requests)
    last = _REFINED if _is_refined(job.request) else 1
    decided: dict[str, _Decided] = {}
    same: dict[str, str] = {}  # by candidate, an earlier one with equal parameters

    def measured(candidates: Mapping[str, Request], done: int) -> dict[str, float]:
        cosines: dict[str, float] = {}
        for number, (name, request) in enumerate(candidates.items(), start=done + 1):
            if job.progress:
                job.progress("choose an observer", number, first + last)
            if same.get(name) in cosines:  # refinements follow from equal parameters, too
                cosines[name] = cosines[same[name]]
                continue
            request = _with(request, _FLOATS)
            scheme = cast("BackendChoice", _choice(request)).options.get(_SCHEME, "")
            if scheme not in decided:
                asked = replace(request, options=job.request.options)  # with the refinements of the result
                decided[scheme] = _Decided(job, _with(asked, _APART))
            work = decided[scheme].calibrated(request)
            earlier = decided[scheme].earlier_with_equal_parameters(name) if work is not None and not done else None
            if earlier is not None:
                same[name], cosines[name] = earlier, cosines[earlier]
                continue
            cosine = _cosine(job, request, decided[scheme], work, original, comparing)
            if cosine is None:
                return {}
            cosines[name] = cosine
        return cosines

    scaled = measured({name: _only_scaled(request) for name, request in requests.items()}, 0)
    names = sorted(scaled, key=scaled.__getitem__, reverse=True)[:last]
    if not names:
        return job.request, Compared({}, {})
    refined = measured({name: requests[name] for name in names}, first) if last > 1 else {}
    refined = refined or {names[0]: scaled[names[0]]}
    found = Compared(scaled, refined, names_refinements=_named_refinements(job.request))
    best = requests[found.best]
    return (_only_scaled(best) if found.refinements_cost else best), found


def _candidates(request: Request) -> dict[str, Request]:
    """The requests to compare, one per scheme and observer, by their names in remarks."""
    chosen = cast("BackendChoice", _choice(request)).options
    found: dict[str, Request] = {}
    for options in OBSERVERS:
        candidate = _with(request, options)
        found[str(_observer(candidate))] = candidate
    from_file = request.options.get(OPTION, {}).get("document")
    if _SCHEME not in chosen and chosen.get("march", _OLDEST) != _OLDEST and not from_file:
        found |= {f"asymmetric {name}": _with(one, ASYMMETRIC) for name, one in found.items()}
    return found


def with_scheme_of_plan(request: Request) -> Request:
    """Let a replay have zero points if its plan has them, unless the request says otherwise."""
    choice = _choice(request)
    if request.plan is None or choice is None or _SCHEME in choice.options:
        return request
    scheme = next((one.options.get(_SCHEME) for one in request.plan.backends if one.name == _BACKEND), None)
    return request if scheme is None else _with(request, {_SCHEME: scheme})


def remarks_of(compared: Compared) -> list[Remark]:
    """Say which observer and scheme were chosen, and by which figures."""
    if not compared.refined:
        return []
    text = _text(compared.scaled)
    why = f"calibrated with {compared.best}: cosine similarity of the worst output on the first batches: {text}"
    if len(compared.refined) > 1:
        why += f"; of the best three with refined weights and biases: {_text(compared.refined)}"
    if compared.refinements_cost:
        why += "; its weights and biases are not refined, which costs accuracy here"
    chosen = f"--backend {_BACKEND}:{OBSERVER}=NAME,{_SCHEME}=symmetric chooses one"
    return [Remark("analysis", "", "calibration", "observer", why, advice=chosen)]


def _text(found: Mapping[str, float]) -> str:
    ordered = sorted(found.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {cosine:.6f}" for name, cosine in ordered)


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


def _is_refined(request: Request) -> bool:
    """Check whether refinements follow calibration; those of the backend's file do, unless the request names others."""
    from dovetail_quantize import REFINE_OPTION, SCALING

    steps = request.options.get(REFINE_OPTION, {}).get("steps")
    return steps is None or any(step not in SCALING for step in steps)


def _named_refinements(request: Request) -> bool:
    from dovetail_quantize import REFINE_OPTION

    return request.options.get(REFINE_OPTION, {}).get("steps") is not None


def _only_scaled(request: Request) -> Request:
    """The request without those refinements that follow calibration."""
    from dovetail_quantize import REFINE_OPTION, SCALING

    steps = [step for step in request.options.get(REFINE_OPTION, {}).get("steps", ()) if step in SCALING]
    return replace(request, options={**request.options, REFINE_OPTION: {"steps": steps}})


class _Decided:
    """A model decided once, and calibrated with one observer after the other, with and without refinements.

    Args:
        job: The compilation.
        request: Its request with the scheme, one of the observers, and the refinements of the result: what these
            prepare, such as biases to correct, is there while the model is decided.
    """

    def __init__(self, job: CompileJob, request: Request):
        from dovetail_quantize import share_quantized_model

        self.ctx = _context(job, request)
        share_quantized_model(self.ctx)
        self._driver = Driver(job.original, self.ctx, job.passes)
        self._model, _ = self._driver.decide()
        self._observer = _observer(request)
        self._found: dict[str, list[tuple[object, ...]]] = {}  # quantized values by candidate

    def calibrated(self, request: Request) -> Model | None:
        """Calibrate with the observer of a request, and return the calibrated model.

        Args:
            request: A request of this scheme; it is refined as it says.

        Returns:
            None if the model has to be decided again for this observer, or computes in low floats, too.
        """
        from dovetail_placement import replace_observer

        if any(one.kind == "cast" for one in self.ctx.round.joins):
            return None
        self.ctx.request = replace(self.ctx.request, options=request.options)
        work = self._model.continued()
        replace_observer(work, self._observer, _observer(request))
        return work if self._driver.calibrate(work) else None

    def earlier_with_equal_parameters(self, name: str) -> str | None:
        """Return a candidate that was calibrated earlier with the same result as the latest one, which is `name`.

        It computes the same, with and without refinements. On small activations, minmax and the percentile agree.
        None where more than the parameters may differ: scaled layers, and weights in blocks, whose scales are not kept.
        """
        from dovetail_quantize import SCALING, RefinementRecord

        values = self.ctx.outcome.quantized_values
        if RefinementRecord.of(self.ctx).changed(SCALING) or any(one.parameters is None for one in values):
            return None
        found = [_essence(one) for one in values]
        earlier = next((other for other, known in self._found.items() if known == found), None)
        if earlier is None:
            self._found[name] = found
        return earlier


def _essence(one: QuantizedValue) -> tuple[object, ...]:
    """The calibration of a quantized value; its group and its source also name the observer."""
    return one.value, one.format, one.parameters, one.readers, one.made_by


def _context(job: CompileJob, request: Request) -> Context:
    """The context of a trial, which shares what was measured for the others."""
    ctx = Context(request, plugins=job.ctx.plugins)
    ctx.load_backends()
    ctx.try_engines = ctx.files_wanted = False
    ctx.measured = job.ctx.measured
    return ctx


def _cosine(
    job: CompileJob,
    request: Request,
    decided: _Decided,
    calibrated: Model | None,
    original: RunFunction,
    comparing: object,
) -> float | None:
    """The cosine similarity of the worst output, on average; None if it says nothing about the observer."""
    from dovetail_quantize import quantized_model_of
    from dovetail_runtime import batches, fitted
    from dovetail_verify import reference_runner, verify

    if calibrated is not None:
        ctx = decided.ctx
        made = quantized_model_of(calibrated, ctx).model
    else:
        ctx = _context(job, request)
        made = Driver(job.original, ctx, job.passes).compile().model
    if not any("batch" in one.source for one in ctx.outcome.quantized_values):
        return None
    found: list[float] = []
    # One session: nobody asks where a candidate runs. It runs a few times, and its weights stay as they are.
    on_host = reference_runner(made, ctx, {"share_weights": True})
    for feeds, _ in islice(batches(job.original, comparing, made), _BATCHES):
        outputs = verify(job.original, original, lambda given: on_host(fitted(made, given)), feeds, made=made).outputs
        cosines = [0.0 if output.broken else output.cosine for output in outputs if output.cosine is not None]
        if not cosines:
            return None
        found.append(min(cosines))
    return sum(found) / len(found) if found else None
