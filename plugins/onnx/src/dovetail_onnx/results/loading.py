"""Results that are there already, loaded from a folder or from a model file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail.artifacts import ArtifactFolder
from dovetail.compiled import CompiledModel
from dovetail.errors import DovetailError
from dovetail.gc_pause import gc_paused
from dovetail.planning.placement import HOST, get_placement
from dovetail.planning.plan import Plan
from dovetail.planning.remark import Remark

from dovetail_onnx.results.annotated import annotated
from dovetail_onnx.results.manifest import ARTIFACTS, MODEL, PLAN, REMARKS
from dovetail_onnx.results.plan_file import parse_plan, parse_remarks, read_plan
from dovetail_onnx.results.plan_files import files_beside
from dovetail_onnx.results.reading import FoundResult, SavedFolder, open_result, seal_of
from dovetail_onnx.results.saved_plan import SavedPlan

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.results import SavedResult


def load_result(path: Path, plugins: PluginSet) -> CompiledModel:
    """The result in a folder, or in a model file; see `dovetail.load`."""
    from dovetail.frontends import open_file
    from dovetail.passes.context import Context
    from dovetail.passes.request import Request

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
    return compiled


def compiled_from(model: Model, saved: SavedFolder) -> CompiledModel:
    """The result that a model is which was opened from a file of one; it has no backends yet."""
    model, found = annotated(model), saved.found
    plan = _plan_of(model, found) if found is not None else _plan_beside(model, saved.file)
    return CompiledModel(model, plan, saved=cast("SavedResult", saved), artifacts=_artifacts_of(found))


def _artifacts_of(found: FoundResult | None) -> ArtifactFolder | None:
    """The artifacts of a result; None if it has none."""
    start = f"{ARTIFACTS}/"
    if found is None or not any(name.startswith(start) for name in found.manifest.files):
        return None
    altered = [name.removeprefix(start) for name in found.altered if name.startswith(start)]
    names = [name.removeprefix(start) for name in found.manifest.files if name.startswith(start)]
    return ArtifactFolder(found.folder / ARTIFACTS, altered, names)


def _plan_of(model: Model, found: FoundResult) -> Plan:
    """The plan of a result, read when it is first looked at; where it was altered, what the annotations tell."""
    return SavedPlan(lambda: _read_plan(model, found))


def _read_plan(model: Model, found: FoundResult) -> Plan:
    with gc_paused():
        remarks = []
        if REMARKS in found.texts:
            remarks = parse_remarks(found.texts[REMARKS].decode(errors="replace"), str(found.folder / REMARKS))
        if PLAN in found.texts:
            fields, _ = parse_plan(found.texts[PLAN].decode(errors="replace"), str(found.folder / PLAN))
            plan = Plan(**fields, files=files_beside(fields["summary"], found.folder / PLAN))
        else:
            plan = Plan.extract(model)
    plan.remarks = remarks
    for name in sorted(found.altered):
        why = f"{name} is not the file that this model was saved with, so it was not taken"
        suggest = (
            f"replay it: dovetail compile SOURCE --plan {shlex.quote(str(found.folder / name))}" if name == PLAN else ""
        )
        plan.remarks.append(Remark("analysis", "", "load", "altered", why, (), suggest))
    return plan


def _plan_beside(model: Model, file: Path) -> Plan:
    """The plan in the folder of a file that belongs to no result, if it may be its plan."""
    beside = file.parent / PLAN
    if file.name == MODEL and beside.is_file():
        plan = Plan(**read_plan(beside))
        if plan.model.get("result", "") in ("", seal_of(model)):
            return plan
    return Plan.extract(model)


def _backends(model: Model) -> set[str]:
    return {placement.backend for node in model.nodes() if (placement := get_placement(node))}


def _backends_of(names: set[str], plan: Plan, ctx: Context) -> tuple[Backend, ...]:
    from dovetail.passes.backends import check_installed, load_chosen
    from dovetail.passes.request import BackendChoice

    check_installed(ctx.registry, [entry for entry in plan.backends if entry["name"] in names - {HOST}])
    options = {entry["name"]: BackendChoice(entry["name"], dict(entry.get("options", {}))) for entry in plan.backends}
    chosen = [load_chosen(ctx.registry, options.get(name, BackendChoice(name))) for name in sorted(names - {HOST})]
    return (*chosen, ctx.host)
