"""Recognising a model as what the same request made of its source before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin import Recognition

from dovetail_onnx.results.loading import compiled_from
from dovetail_onnx.results.reading import FoundResult, SavedFolder, find_result, seal_of
from dovetail_onnx.results.stamp import STAMP, stamp_for, stamp_of
from dovetail_onnx.seal import read_seal, seal_holds
from dovetail_onnx.skeleton import skeleton_of

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel
    from dovetail.plugin import CompileJob


def recognise(job: CompileJob) -> Recognition:
    """The result that the model of a job is already, if it was compiled for the same request and is as it was saved.

    The stamp says what it was compiled for, the seal that neither graph nor weights were edited since. The graph is
    not looked at.
    """
    stamp = stamp_for(job.request, job.ctx, job.passes, job.tried)

    def mark(compiled: CompiledModel) -> None:
        compiled.model.ir.metadata_props[STAMP] = stamp

    return Recognition(_recognised(job, stamp), mark)


def _recognised(job: CompileJob, stamp: str) -> CompiledModel | None:
    model = job.original
    if not stamp or model.path is None or not model.untouched or stamp_of(model) != stamp:
        return None
    seal = seal_of(model)
    weights = skeleton_of(model).weights.values()
    data = {Path(path) for tensor in weights if (path := getattr(tensor, "path", None))}
    if not seal or read_seal(model.path) != seal or not seal_holds(model.path, data):
        why = "the model was edited since it was compiled: it is compiled as any other"
        job.ctx.remark("analysis", "", "edited", why)
        return None
    compiled = compiled_from(model, SavedFolder(model.path, _result_of(model.path, seal)))
    compiled.backends, compiled.registry = (*job.ctx.backends, job.ctx.host), job.ctx.registry
    return compiled


def _result_of(path: Path, seal: str) -> FoundResult | None:
    """The result that a model's file belongs to, if it lies in its folder."""
    try:
        found = find_result(path.parent)
    except DovetailError:
        return None
    return found if found is not None and found.manifest.seal == seal else None
