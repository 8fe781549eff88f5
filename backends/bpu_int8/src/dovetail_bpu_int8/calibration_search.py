"""Choosing an observer and a scheme as the vendor's tool does: those whose outputs are most like the original's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, cast

from dovetail.compiler import Driver
from dovetail.passes import OBSERVER, BackendChoice, Context
from dovetail.planning import Remark
from dovetail.plugin import Measure, Outcome, Proposal, Stepwise

from dovetail_bpu_int8.bpu_requests import OPTION
from dovetail_bpu_int8.vendor.calibration import ASYMMETRIC

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model
    from dovetail.passes import Request
    from dovetail.planning import ObserverChoice, QuantizedValue
    from dovetail.plugin import CompileJob, Steps, Trial


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

    scaled: Mapping[str, float]
    refined: Mapping[str, float]
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


class ChooseObserver(Stepwise):
    """Finds the request with the best observer and scheme.

    The model is calibrated with every candidate on a part of the data, and compared with the original on the first 32
    batches of another one, neither of which judges the result: first before its biases are corrected or its weights
    rounded, which takes longer than everything else, then the best three with these refinements, because clipped
    numbers shift means, and corrected biases restore them. Refinements that make the best one worse are left out,
    unless the request names them. The request stays as it is if nothing is quantized, or if no output is a float.

    Source: `calibration_type: default` of hb_mapper, which looks at the first sample; one alone decides by chance.
    Zero points are among the alternatives of its successor (`asymmetric: [true, false]`). They are left out if the
    option `activations` or a file of the vendor's tools decides, and on bernoulli2.

    Args:
        job: The compilation.
    """

    phase, name = "observe", "observer"

    def __init__(self, job: CompileJob):
        super().__init__()
        self._job = job

    def steps(self) -> Steps[Outcome]:
        """Compare the candidates.

        Raises:
            DovetailError: The model cannot be compiled.
        """
        from dovetail_quantize import compare_observers

        candidates = DecidedModels(self._job)
        request, progress = candidates.job.request, self._job.progress
        compare_observers(self._job.ctx, [_observer(_with(request, options)) for options in OBSERVERS])
        requests = _candidates(request)
        first, last = len(requests), _REFINED if _is_refined(request) else 1

        def measured(chosen: Mapping[str, Request], what: str, done: int) -> Steps[dict[str, float]]:
            likeness, found = _Likeness(candidates, is_refined=bool(done)), dict[str, float]()
            for number, (name, candidate) in enumerate(chosen.items(), start=done + 1):
                if progress:
                    progress("choose an observer", number, first + last)
                trial = yield Proposal(f"{name}{what}", request=_with(candidate, _FLOATS), measure=likeness)
                if trial.figure is None:
                    return {}
                found[name] = trial.figure
            return found

        scaled = yield from measured({name: _only_scaled(request) for name, request in requests.items()}, "", 0)
        names = sorted(scaled, key=scaled.__getitem__, reverse=True)[:last]
        if not names:
            return Outcome()
        refined: Mapping[str, float] = {}
        if last > 1:
            refined = yield from measured({name: requests[name] for name in names}, ", refined", first)
        found = Compared(scaled, refined or {names[0]: scaled[names[0]]}, _named_refinements(request))
        best = _only_scaled(requests[found.best]) if found.refinements_cost else requests[found.best]
        return Outcome(replace(best, data=self._job.request.data), remarks=remarks_of(found))


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


@dataclass(frozen=True, eq=False)
class _Likeness(Measure):
    """The cosine similarity of the worst output with the original's, on average; None if it says nothing.

    Attributes:
        models: The models that are calibrated.
        is_refined: Whether candidates are refined after calibration.
        found: The figures by request.
    """

    models: DecidedModels
    is_refined: bool
    found: dict[str, float] = field(default_factory=dict)

    compiles = False

    def of(self, trial: Trial) -> float | None:
        """Calibrate a candidate and compare it; one with the parameters of an earlier one has its figure.

        Raises:
            DovetailError: The model cannot be compiled.
        """
        request = cast("Request", trial.proposal.request)
        name, models = str(_choice(request)), self.models
        earlier = models.same.get(name)
        if earlier not in self.found:  # refinements follow from equal parameters, too
            earlier = None
            decided = models.of(request)
            work = decided.calibrated(request)
            if work is not None and not self.is_refined:
                earlier = decided.earlier_with_equal_parameters(name)
            if earlier is None:
                cosine = models.cosine(request, decided, work)
                if cosine is not None:
                    self.found[name] = cosine
                return cosine
            models.same[name] = earlier
        self.found[name] = self.found[earlier]
        return self.found[name]

    def text(self, figure: float | None) -> str:
        """Return a cosine similarity in words."""
        return "nothing to compare" if figure is None else f"cosine similarity {figure:.6f}"


class DecidedModels:
    """The model of a job, decided once per scheme.

    Args:
        job: The job.

    Attributes:
        job: The job, with the data that calibrates candidates.
        same: By candidate, an earlier one with equal parameters.
    """

    def __init__(self, job: CompileJob):
        from dovetail_verify import CachedOriginal, data_of_search, source_runner

        calibrating, self._comparing = data_of_search(job)
        self.job = replace(job, request=replace(job.request, data=calibrating))
        self.same: dict[str, str] = {}
        self._original = CachedOriginal(source_runner(job.original, job.ctx))
        self._decided: dict[str, _Decided] = {}

    def of(self, request: Request) -> _Decided:
        """Return the model that was decided for the scheme of a request."""
        scheme = cast("BackendChoice", _choice(request)).options.get(_SCHEME, "")
        if scheme not in self._decided:
            asked = replace(request, options=self.job.request.options)  # with the refinements of the result
            self._decided[scheme] = _Decided(self.job, _with(asked, _APART))
        return self._decided[scheme]

    def cosine(self, request: Request, decided: _Decided, calibrated: Model | None) -> float | None:
        """Return the cosine similarity of the worst output, on average; None if it says nothing about the observer."""
        from dovetail_quantize import quantized_model_of
        from dovetail_runtime import batches, fitted
        from dovetail_verify import verify

        job = self.job
        if calibrated is not None:
            ctx = decided.ctx
            quantized = quantized_model_of(calibrated, ctx)
            made, on_host = quantized.model, decided.session.of(quantized)
        else:
            ctx = _context(job, request)
            made = Driver(job.original, ctx, job.passes).compile().model
            on_host = _on_host(made, ctx)
        if not any("batch" in one.source for one in ctx.outcome.quantized_values):
            return None
        found: list[float] = []
        for feeds, _ in islice(batches(job.original, self._comparing, made), _BATCHES):
            ours = verify(job.original, self._original, lambda given: on_host(fitted(made, given)), feeds, made=made)
            cosines = [0.0 if output.broken else output.cosine for output in ours.outputs if output.cosine is not None]
            if not cosines:
                return None
            found.append(min(cosines))
        return sum(found) / len(found) if found else None


class _Decided:
    """A model decided once, and calibrated with one observer after the other, with and without refinements.

    Args:
        job: The compilation.
        request: Its request with the scheme, one of the observers, and the refinements of the result: what these
            prepare, such as biases to correct, is there while the model is decided.

    Attributes:
        ctx: Its context.
        session: Runs calibrated models on the host.
    """

    def __init__(self, job: CompileJob, request: Request):
        from dovetail_quantize import SharedSession, share_quantized_model

        self.ctx = ctx = _context(job, request)
        share_quantized_model(ctx)
        self.session = SharedSession(lambda model: _on_host(model, ctx))
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


def _on_host(model: Model, ctx: Context) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Load a candidate. It runs a few times only: optimizing it would take longer than that saves."""
    from dovetail_verify import reference_runner

    return reference_runner(model, ctx, {"optimize": "none", "share_weights": True})


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
