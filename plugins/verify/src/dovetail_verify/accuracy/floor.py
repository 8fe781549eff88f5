"""The accuracy floor of a backend: nodes that alone in integers leave less at an output are computed in floats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import Context
from dovetail.planning import Remark
from dovetail.plugin import Outcome, Proposal, Stepwise
from dovetail.text import pluralize

from dovetail_verify.functions import layers_of_request
from dovetail_verify.layer_search import RESCALING
from dovetail_verify.measures import Compared

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel, CompileJob, Steps, Trial

_MEASURED = 12  # nodes, worst alone first, whose effect on the outputs is measured; each takes a run per batch
_BATCHES = 4  # on which nodes are measured
_NAMED = 4
_CLEAR = 1.0  # dB that other scales must gain
_OPTION, _ASYMMETRIC = "activations", "asymmetric"  # of backend files
_COSTLY, _BETTER_SCALES = "costly-nodes", "better-scales"
_REFINE = "refine"  # the name of the option in a request that chooses refinements


class AboveFloor(Stepwise):
    """Finds a result in which no node in integers alone leaves less than its backend's `accuracy: {floor: ...}`.

    If an output of the result has less than the floor, results with other scales are tried first (other activations,
    without refinements); then nodes below the floor are computed in floats, and a remark names them. Only the samples
    that calibrate are looked at, and the arithmetic is that of the plan on the host, so the decision is the same on
    every machine. Pins, `--low` and replayed plans are obeyed, and switch this off.

    Args:
        job: The compilation.
    """

    phase, name, compares = "raise", "floor", False

    def __init__(self, job: CompileJob):
        super().__init__()
        self._job, self._floors = job, floors_of(job)

    def steps(self) -> Steps[Outcome]:
        """Search for the result.

        Raises:
            DovetailError: The result or the original cannot be run.
        """
        job, request = self._job, self._job.request
        measure = Compared.on(request.data, job.original, job.ctx)
        as_it_is = Proposal("the request as it is")
        first = yield as_it_is
        used = {node.backend for node in first.result.plan.nodes} & self._floors.keys()
        if not used or request.plan is not None or request.pins or request.low:
            return Outcome(trial=first)
        floor = max(self._floors[name][0] for name in used)
        measured = yield replace(as_it_is, measure=measure)
        if (before := _worst(measured)) >= floor:
            return Outcome(trial=measured)
        best, before, remarks = yield from self._with_better_scales(measured, before, measure)
        request = best.proposal.request or request
        # Layers of a result whose channels were scaled cannot be compared.
        looked_at, unscaled = best, _unscaled(request, best.result)
        if unscaled is not None:
            looked_at = yield Proposal("the same without scaled channels, to look at its layers", request=unscaled)
        for one in (best, looked_at):  # the sessions that look at layers take as much memory again
            one.result.unload()
        try:
            layers = layers_of_request(
                job.original, looked_at.result, request.data, Context(request, plugins=job.ctx.plugins), job.passes,
                by="outputs", outputs=_MEASURED, most=_BATCHES, progress=job.progress,
            ).layers  # fmt: skip
        except DovetailError as error:  # some results cannot be looked at node by node
            why = f"{before:.1f} dB on samples that calibrate, and no node is named that costs them: {error.message}"
            return Outcome(
                trial=best, remarks=[*remarks, Remark("analysis", "", "accuracy", _COSTLY, why, advice=error.hint)]
            )
        costly = [
            layer for layer in layers
            if layer.backend in self._floors and layer.at_outputs is not None
            and round(layer.at_outputs, 1) < self._floors[layer.backend][0]
        ]  # fmt: skip
        names = [name for layer in costly for name in (layer.node, *layer.moving)]
        if not names:
            why = f"no node alone leaves less than {floor:g} dB: the errors of many add up"
            return Outcome(trial=best, remarks=[*remarks, _in_vain(before, why)])
        asks = f"in integers alone it leaves less than {floor:g} dB"
        raised = dict.fromkeys(names, ("high", asks))
        better = yield Proposal(f"{pluralize(len(costly), 'node')} in float32", raised, request, measure)
        after = _worst(better)
        if after <= before:
            why = f"{pluralize(len(costly), 'node')} in float32 would leave {after:.1f} dB"
            return Outcome(trial=best, remarks=[*remarks, _in_vain(before, why)])
        said = ", ".join(f"'{layer.node}' {layer.at_outputs:.1f} dB" for layer in costly[:_NAMED])
        more = ", ..." if len(costly) > _NAMED else ""
        why = (
            f"{pluralize(len(costly), 'node')} stayed in float32, because in integers {said}{more} would be left at "
            f"the worst output: {before:.1f} dB before, {after:.1f} dB with them, on samples that calibrate"
        )
        backend = costly[0].backend
        advice = f"--backend {backend}:floor=none leaves none in floats; --min-snr 30 raises what is needed for a goal"
        source = self._floors[backend][1]
        return Outcome(
            trial=better,
            remarks=[*remarks, Remark("analysis", "", "accuracy", _COSTLY, why, advice=advice, source=source)],
        )

    def _with_better_scales(
        self, first: Trial, before: float, measure: Compared
    ) -> Steps[tuple[Trial, float, list[Remark]]]:
        """Return the most accurate of a result and those with other scales, the SNR that it leaves, and the reasons."""
        asked, remarks = self._job.request, list[Remark]()
        best, least = first, before
        unscaled = _unscaled(asked, first.result)
        plain = _refined(asked, ()) if _REFINE not in asked.options and _changed(first.result) else None
        if plain is not None and unscaled is not None and plain.options == unscaled.options:
            plain = None
        others = {
            "channels that are not scaled": unscaled,
            "no refinements": plain,
            f"{_OPTION}={_ASYMMETRIC}": _asymmetric(self._job, asked, self._floors),
        }
        for name, request in others.items():
            if request is None:
                continue
            other = yield Proposal(name, request=request, measure=measure)
            after = _worst(other)
            if after < least + _CLEAR:
                other.result.unload()
                continue
            best.result.unload()
            why = f"{name}: {after:.1f} dB at the worst output, {least:.1f} dB without, on samples that calibrate"
            remarks.append(Remark("analysis", "", "accuracy", _BETTER_SCALES, why))
            best, least = other, after
        return best, least, remarks


def floors_of(job: CompileJob) -> dict[str, tuple[float, str]]:
    """Return the floor of each backend that has one, in decibels, with file and line."""
    return {backend.name: backend.floor for backend in job.ctx.backends if backend.floor is not None}


def _in_vain(before: float, found: str) -> Remark:
    why = f"{before:.1f} dB on samples that calibrate, and no node stayed in float32 for that: {found}"
    advice = "--min-snr 30 raises what is needed for a goal, and says if that is everything"
    return Remark("analysis", "", "accuracy", _COSTLY, why, advice=advice)


def _unscaled(request: Request, compiled: CompiledModel) -> Request | None:
    """Return a request without the refinements that scale channels; None if they changed nothing in its result."""
    changed = _changed(compiled)
    if not any(changed.get(step) for step in RESCALING):
        return None
    return _refined(request, [step for step in changed if step not in RESCALING])


def _changed(compiled: CompiledModel) -> Mapping[str, int]:
    """Return how much each refinement of a result changed."""
    found: Mapping[str, int] = compiled.plan.summary.get("refined", {}).get("changed", {})
    return found


def _refined(request: Request, steps: Sequence[str]) -> Request:
    return replace(request, options={**request.options, _REFINE: {"steps": list(steps)}})


def _asymmetric(job: CompileJob, request: Request, floors: Mapping[str, object]) -> Request | None:
    """Return a request with zero points of activations; None if no backend has them as an option that is open."""
    names = {
        backend.name
        for backend in job.ctx.backends
        if backend.name in floors and _ASYMMETRIC in backend.options.get(_OPTION, ())
    }
    choices = tuple(
        replace(choice, options={**choice.options, _OPTION: _ASYMMETRIC})
        if choice.name in names and choice.observer is None and not {_OPTION, "weights"} & choice.options.keys()
        else choice
        for choice in request.backends
    )
    return None if choices == request.backends else replace(request, backends=choices)


def _worst(trial: Trial) -> float:
    """Return the SNR of the worst float output on the samples that calibrate, in tenths; infinite without one.

    Tenths, because sums in another order change the last bits on other machines.
    """
    worst = trial.figure.worst_snr_db
    return math.inf if worst is None else round(worst, 1)
