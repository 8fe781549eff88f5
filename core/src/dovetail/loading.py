"""Results that are there already: loaded from a folder, or recognised as what a request would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.compiled import CompiledModel
from dovetail.errors import DovetailError
from dovetail.gc_pause import gc_paused
from dovetail.ir.seal import read_seal, seal_holds
from dovetail.planning.annotated import annotated
from dovetail.planning.placement import HOST, get_placement
from dovetail.planning.plan import Plan
from dovetail.planning.plan_file import parse_plan, parse_remarks
from dovetail.planning.remark import Remark
from dovetail.planning.saved_plan import SavedPlan
from dovetail.results.manifest import ARTIFACTS, MODEL, PLAN, REMARKS
from dovetail.results.reading import FoundResult, find_result, open_result, seal_of
from dovetail.runtime.artifacts import ArtifactFolder
from dovetail.stamp import stamp_of

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.plugin.loader import PluginSet
    from dovetail.runtime.engine import Engine

__all__ = ["load_result", "recognised"]


def load_result(path: Path, plugins: PluginSet | None = None) -> CompiledModel:
    """The result in a folder, or in a model file; see `dovetail.load`."""
    from dovetail.frontends import open_file
    from dovetail.passes.context import Context
    from dovetail.passes.request import Request
    from dovetail.plugin.loader import load_plugins

    plugins = plugins or load_plugins()
    opened = open_result(path, plugins) if path.is_dir() else None
    if opened is not None:
        model, found = opened
        file = found.model
    else:
        file, found = path / MODEL if path.is_dir() else path, None
        if not file.is_file():
            raise DovetailError(f"{path} holds no {MODEL}", "`dovetail compile ... -o FOLDER` writes one")
        model = open_file(file, plugins)
    model = annotated(model)
    plan = _plan_of(model, found) if found is not None else _plan_beside(model, file)
    ctx = Context(Request(), plugins=plugins)
    names = {row["backend"] for row in found.manifest.placements} if found is not None else _backends(model)
    engines = _engines(names, plan, ctx)
    return CompiledModel(
        model, plan, engines, unchanged=file, recorded=found, artifacts=_artifacts_of(found), registry=ctx.registry
    )


def recognised(model: Model, stamp: str, engines: Mapping[str, Sequence[Engine]], ctx: Context) -> CompiledModel | None:
    """The result that `model` is already, if it was compiled for the same request and is as it was saved.

    The stamp says what it was compiled for, the seal that neither graph nor weights were edited since. The graph is
    not looked at.
    """
    if not stamp or model.path is None or not model.untouched or stamp_of(model) != stamp:
        return None
    seal = seal_of(model)
    data = {Path(tensor.path) for tensor in model.skeleton().weights.values() if getattr(tensor, "path", None)}
    if not seal or read_seal(model.path) != seal or not seal_holds(model.path, data):
        ctx.remark("analysis", "", "edited", "the model was edited since it was compiled: it is compiled as any other")
        return None
    found = _result_of(model, seal)
    model = annotated(model)
    plan = _plan_of(model, found) if found is not None else _plan_beside(model, model.path)
    return CompiledModel(
        model,
        plan,
        dict(engines),
        unchanged=model.path,
        recorded=found,
        artifacts=_artifacts_of(found),
        registry=ctx.registry,
    )


def _result_of(model: Model, seal: str) -> FoundResult | None:
    """The result that the model's file belongs to, if it lies in its folder."""
    try:
        found = find_result(model.path.parent)
    except DovetailError:
        return None
    return found if found is not None and found.manifest.seal == seal else None


def _artifacts_of(found: FoundResult | None) -> ArtifactFolder | None:
    """The artifacts of a result; None if it has none."""
    start = f"{ARTIFACTS}/"
    if found is None or not any(name.startswith(start) for name in found.manifest.files):
        return None
    altered = [name.removeprefix(start) for name in found.altered if name.startswith(start)]
    return ArtifactFolder(found.folder / ARTIFACTS, altered)


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
            plan = Plan(**fields)
        else:
            plan = Plan.extract(model)
    plan.remarks = remarks
    for name in sorted(found.altered):
        why = f"{name} is not the file that this model was saved with, so it was not taken"
        suggest = f"replay it: dovetail compile SOURCE --plan {found.folder / name}" if name == PLAN else ""
        plan.remarks.append(Remark("analysis", "", "load", "altered", why, (), suggest))
    return plan


def _plan_beside(model: Model, file: Path) -> Plan:
    """The plan in the folder of a file that belongs to no result, if it may be its plan."""
    beside = file.parent / PLAN
    if file.name == MODEL and beside.is_file():
        plan = Plan.load(beside)
        if plan.model.get("result", "") in ("", seal_of(model)):
            return plan
    return Plan.extract(model)


def _backends(model: Model) -> set[str]:
    return {placement.backend for node in model.nodes() if (placement := get_placement(node))}


def _engines(names: set[str], plan: Plan, ctx: Context) -> dict[str, list[Engine]]:
    from dovetail.passes.backends import load_chosen
    from dovetail.passes.request import BackendChoice
    from dovetail.runtime.engines import engines_of

    options = {entry["name"]: BackendChoice(entry["name"], dict(entry.get("options", {}))) for entry in plan.backends}
    chosen = [load_chosen(ctx.registry, options.get(name, BackendChoice(name))) for name in sorted(names - {HOST})]
    return engines_of((*chosen, ctx.host), ctx.registry)
