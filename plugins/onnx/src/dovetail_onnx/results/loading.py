"""Loading of existing results from a folder or a model file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail.compiler import plan_of
from dovetail.errors import DovetailError
from dovetail.ir import Model, gc_paused
from dovetail.planning import HOST, Plan, Remark, get_placement
from dovetail.plugin import CompiledModel, Recognition
from dovetail.plugin.loading import ArtifactFolder

from dovetail_onnx.annotations import read_annotations
from dovetail_onnx.results.cache_key import STAMP, cache_key_for, cache_key_of
from dovetail_onnx.results.comparison_file import parse_comparison
from dovetail_onnx.results.manifest import ARTIFACTS, COMPARISON, MODEL, PLAN, REMARKS
from dovetail_onnx.results.plan_file import SavedPlan, parse_plan, parse_remarks, read_plan
from dovetail_onnx.results.provenance import located, origin_remarks
from dovetail_onnx.results.reading import FoundResult, SavedFolder, content_digest_of, find_result, open_result
from dovetail_onnx.results.writing import files_beside
from dovetail_onnx.saving import content_digest_holds, read_content_digest
from dovetail_onnx.skeleton import skeleton_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.passes import Context
    from dovetail.plugin import Backend, CompileJob, LazyModel, PluginSet, SavedResult


class _Annotated(Model):
    """A model from a file whose annotations are read on first use of the graph."""

    _annotated = False

    @property
    def ir(self) -> ir.Model:
        """The onnx-ir model, with its annotations."""
        if not self._annotated:
            with self._building:
                if not self._annotated:
                    super().ir  # noqa: B018  (builds the graph)
                    self._annotated = True  # set first, because reading annotations accesses the graph
                    read_annotations(self)
        return super().ir

    def rebuild(self, lazy: LazyModel) -> None:
        """Replace the graph by one with its own annotations."""
        self._annotated = False
        super().rebuild(lazy)

    def clone(self) -> Model:
        """Return a copy, which also reads the annotations lazily."""
        return annotated(super().clone()) if self.untouched else super().clone()


def annotated(model: Model) -> Model:
    """Return `model` with its annotations; lazily, if its graph has not been built yet.

    Raises:
        DovetailError: An annotation is malformed; raised here or when the graph is built.
    """
    if model.untouched:
        lazy = _Annotated(path=model.path, lazy=model.lazy, checked=True, dialect=model.dialect)
        lazy.revision = model.revision
        return lazy
    read_annotations(model)
    return model


def load_result(path: Path, plugins: PluginSet) -> CompiledModel:
    """Load the result in a folder or a model file; see `dovetail.load`."""
    from dovetail.passes import Context, Request
    from dovetail.plugin.loading import open_file

    opened = open_result(path, plugins) if path.is_dir() else None
    if opened is not None:
        model, found = opened
        file = found.model
    else:
        file, found = path / MODEL if path.is_dir() else path, None
        if not file.is_file():
            raise DovetailError(f"{path} holds no {MODEL}", "`dovetail compile ... -o FOLDER` writes one")
        model = open_file(file, plugins)
    compiled = compiled_from(model, SavedFolder(file, found))
    ctx = Context(Request(), plugins=plugins)
    names = {row["backend"] for row in found.manifest.placements} if found is not None else _backends(compiled.model)
    compiled.backends, compiled.registry = _backends_of(names, compiled.plan, ctx), ctx.registry
    compiled.plan.remarks += origin_remarks(compiled.plan.backends, plugins)
    if found is not None and COMPARISON in found.texts:
        compiled.verification = parse_comparison(found.texts[COMPARISON], str(found.folder / COMPARISON))
    return compiled


def compiled_from(model: Model, saved: SavedFolder) -> CompiledModel:
    """Return the result for a model opened from one of its files; backends are not set yet."""
    model, found = annotated(model), saved.found
    plan = _plan_of(model, found) if found is not None else _plan_beside(model, saved.file)
    place = found.folder if found is not None else None
    saved_result = cast("SavedResult", saved)
    return CompiledModel(model, plan, saved=saved_result, saved_to=place, artifacts=_artifacts_of(found))


def _artifacts_of(found: FoundResult | None) -> ArtifactFolder | None:
    """Return the artifacts of a result, or None."""
    start = f"{ARTIFACTS}/"
    if found is None or not any(name.startswith(start) for name in found.manifest.files):
        return None
    altered = [name.removeprefix(start) for name in found.altered if name.startswith(start)]
    names = {name.removeprefix(start) for name in found.manifest.files if name.startswith(start)}
    return ArtifactFolder(found.folder / ARTIFACTS, altered, names)


def _plan_of(model: Model, found: FoundResult) -> Plan:
    """Return the plan of a result, read on first access; if the file was altered, it follows from the annotations."""
    return SavedPlan(lambda: _read_plan(model, found))


def _read_plan(model: Model, found: FoundResult) -> Plan:
    with gc_paused():
        remarks = []
        if REMARKS in found.texts:
            remarks = parse_remarks(found.texts[REMARKS].decode(errors="replace"), str(found.folder / REMARKS))
        if PLAN in found.texts:
            fields, _ = parse_plan(found.texts[PLAN].decode(errors="replace"), str(found.folder / PLAN))
            fields["backends"] = located(fields["backends"], found.folder)
            plan = Plan(**fields, files=files_beside(fields["summary"], found.folder / PLAN))
        else:
            plan = plan_of(model)
    plan.remarks = remarks
    for name in sorted(found.altered):
        why = f"{name} is not the file that this model was saved with, so it was not taken"
        suggest = (
            f"replay it: dovetail compile SOURCE --plan {shlex.quote(str(found.folder / name))}" if name == PLAN else ""
        )
        plan.remarks.append(Remark("analysis", "", "load", "altered", why, (), suggest))
    return plan


def _plan_beside(model: Model, file: Path) -> Plan:
    """Return the plan next to a file that belongs to no result, if it matches; else the plan in its annotations."""
    own = file.name != MODEL  # one of several models in a folder; a plan of its source may have the same name
    beside = file.parent / (f"{file.stem}.{PLAN}" if own else PLAN)
    digest = content_digest_of(model)
    if beside.is_file() and (digest or not own):
        plan = Plan(**read_plan(beside))
        if plan.model.get("result", "") in ((digest,) if own else ("", digest)):
            return plan
    return plan_of(model)


def _backends(model: Model) -> set[str]:
    return {placement.backend for node in model.nodes() if (placement := get_placement(node))}


def _backends_of(names: set[str], plan: Plan, ctx: Context) -> tuple[Backend, ...]:
    from dovetail.passes import BackendChoice
    from dovetail.plugin.loading import check_installed, load_chosen

    check_installed(ctx.registry, [one for one in plan.backends if one.name in names - {HOST}])
    choices = {one.name: one.choice for one in plan.backends}
    chosen = [load_chosen(ctx.registry, choices.get(name, BackendChoice(name))) for name in sorted(names - {HOST})]
    return (*chosen, ctx.host)


def recognize(job: CompileJob) -> Recognition:
    """Return the existing result of a job's model, if it was compiled for the same request and is unmodified.

    The cache key identifies the request; the content digest shows that neither graph nor weights were edited. The graph
    itself is not compared.
    """
    cache_key = cache_key_for(job.request, job.ctx, job.passes, job.tried)

    def mark(compiled: CompiledModel) -> None:
        compiled.model.ir.metadata_props[STAMP] = cache_key

    return Recognition(_recognized(job, cache_key), mark)


def _recognized(job: CompileJob, cache_key: str) -> CompiledModel | None:
    model = job.original
    if not cache_key or model.path is None or not model.untouched or cache_key_of(model) != cache_key:
        return None
    content_digest = content_digest_of(model)
    weights = skeleton_of(model).weights.values()
    data = {Path(path) for tensor in weights if (path := getattr(tensor, "path", None))}
    if (
        not content_digest
        or read_content_digest(model.path) != content_digest
        or not content_digest_holds(model.path, data)
    ):
        why = "the model was edited since it was compiled: it is compiled as any other"
        job.ctx.remarks.append(Remark("analysis", "", "load", "edited", why))
        return None
    compiled = compiled_from(model, SavedFolder(model.path, _result_of(model.path, content_digest)))
    compiled.backends, compiled.registry = (*job.ctx.backends, job.ctx.host), job.ctx.registry
    return compiled


def _result_of(path: Path, content_digest: str) -> FoundResult | None:
    """Return the result that a model file belongs to, if the file is in its folder."""
    try:
        found = find_result(path.parent)
    except DovetailError:
        return None
    return found if found is not None and found.manifest.content_digest == content_digest else None
