"""The functions that the command line and Python users call; each does one thing from model to result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.garbage import without_collections
from dovetail.listing import BackendInfo, backends
from dovetail.passes.request import BackendChoice, Request
from dovetail.stamp import STAMP, stamp_for, stamp_of

if TYPE_CHECKING:
    import numpy as np

    from dovetail.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.passes import Context, Instrumentation
    from dovetail.planning.plan import Plan
    from dovetail.plugins import PluginSet
    from dovetail.verification import Verification

__all__ = ["BackendInfo", "backends", "compile", "explain", "load", "open", "plan", "verify"]

_DECIDE = ("normalise", "analyse", "place", "type")
_CARRY_OUT = ("calibrate", "quantise", "join", "weights", "outline", "lower")

Progress = Callable[[str, int, int], None]


def open(path: str | Path) -> Model:
    """Open an ONNX model; its weights stay on disk. See `dovetail.ir.open_model`."""
    from dovetail.ir.opening import open_model

    return open_model(path)


def plan(
    model: Model | str | Path,
    backends: Sequence[str | BackendChoice] = (),
    *,
    strategy: str | None = None,
    solver: str = "forward",
    costs: str | Path | None = None,
    pins: Sequence[str] = (),
    low: Sequence[str] = (),
    high: Sequence[str] = (),
    keep_io_types: bool = True,
    data: object = None,
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
    instrumentation: Instrumentation | None = None,
) -> Plan:
    """Decide where and in what every node of `model` is computed, without changing it.

    Args:
        model: The model, or the path of one.
        backends: `NAME` or `NAME:key=value,...`, in order of preference; the host takes what they leave.
        strategy: A strategy to use instead of the one that each backend names.
        solver: How precisions are chosen.
        costs: What `min-cut` counts: the path of a cost table, or the name of one that a plugin brings.
        pins: Manual choices, `SELECTOR=backend/precision`.
        low: Selectors of nodes that shall be computed in the low precision whatever their policy is.
        high: Selectors of nodes that shall be computed in the types of the source model.
        keep_io_types: Keep the types of the model's inputs and outputs.
        data: Data for passes that measure.
        plugins: The plugins to use; by default all that are installed.
        progress: Called with (what, done, total).
        instrumentation: What to print and verify on the way.

    Raises:
        DovetailError: The model or the request is at fault.
    """
    from dovetail.planning.plan import Plan

    choices = {"strategy": strategy, "solver": solver, "costs": costs, "pins": pins, "low": low, "high": high}
    request = _request(backends, keep_io_types=keep_io_types, data=data, **choices)
    ctx = _context(request, plugins)
    work = _copy(open(model) if isinstance(model, (str, Path)) else model)
    _run(work, ctx, _DECIDE, progress, instrumentation)
    return Plan.extract(work, ctx)


def compile(
    model: Model | str | Path,
    backends: Sequence[str | BackendChoice] = (),
    *,
    data: object = None,
    verify: bool | None = None,
    plan: Plan | str | Path | None = None,
    strategy: str | None = None,
    solver: str = "forward",
    costs: str | Path | None = None,
    pins: Sequence[str] = (),
    low: Sequence[str] = (),
    high: Sequence[str] = (),
    keep_io_types: bool = True,
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
    instrumentation: Instrumentation | None = None,
) -> CompiledModel:
    """Carry a plan out: give every node its backend and precision, with exactly the conversions that needs.

    A model that the same request compiled before is recognised and given back as it is.

    Args:
        model: The model, or the path of one; a model that is passed in is not changed.
        data: Inputs to verify the result on; see `dovetail.verification.data.batches`.
        verify: Compare the result with the original; by default when there is data, on random inputs if there is none.
        plan: A plan to replay, or its path. Its backends are used where `backends` names none.
        backends, strategy, solver, costs, pins, low, high, keep_io_types, plugins, progress, instrumentation: As for
            `plan`.

    Raises:
        DovetailError: The model or the request is at fault.
    """
    from dovetail.compiled import CompiledModel
    from dovetail.planning.plan import Plan
    from dovetail.runtime.engines import engines_of

    original = open(model) if isinstance(model, (str, Path)) else model
    planned = Plan.load(plan) if isinstance(plan, (str, Path)) else plan
    if planned is not None and not backends:
        backends = [_choice(entry) for entry in planned.backends]
    choices = {"strategy": strategy, "solver": solver, "costs": costs, "pins": pins, "low": low, "high": high}
    request = _request(backends, keep_io_types=keep_io_types, data=data, plan=planned, **choices)
    ctx = _context(request, plugins)
    engines = engines_of((*ctx.backends, ctx.host), ctx.registry)
    stamp = stamp_for(request, ctx)
    if stamp_of(original) == stamp and original.path is not None and planned is None:
        compiled = _recognised(original, engines, ctx)
    else:
        work = _copy(original)
        _run(work, ctx, _DECIDE, progress, instrumentation)
        with without_collections():
            decided = Plan.extract(work, ctx)
        _run(work, ctx, _CARRY_OUT, progress, instrumentation)
        decided.remarks = list(ctx.remarks)
        work.ir.metadata_props[STAMP] = stamp
        compiled = CompiledModel(work, decided, engines, files=dict(ctx.files))
    if verify or verify is None and data is not None:
        reference = _reference(original, ctx)
        compiled.verification = _verify(original, reference, _runner(compiled), data, request.seed, progress)
    return compiled


def load(folder: str | Path, plugins: PluginSet | None = None) -> CompiledModel:
    """Read back what `CompiledModel.save` wrote.

    Raises:
        DovetailError: The folder holds no compiled model, or one of its backends is not installed.
    """
    from dovetail.compiled import MODEL, PLAN, CompiledModel
    from dovetail.passes.backends import load_chosen
    from dovetail.planning.annotations import read_annotations
    from dovetail.planning.plan import Plan
    from dovetail.runtime.engines import engines_of

    folder = Path(folder)
    path = folder / MODEL if folder.is_dir() else folder
    if not path.is_file():
        raise DovetailError(f"{folder} holds no {MODEL}", "`dovetail compile ... -o FOLDER` writes one")
    model = open(path)
    read_annotations(model)
    if (path.parent / PLAN).is_file():
        decided = Plan.load(path.parent / PLAN)
    else:
        decided = Plan.extract(model)
    ctx = _context(Request(), plugins)
    from dovetail.planning.placement import HOST, get_placement

    names = {placement.backend for node in model.nodes() if (placement := get_placement(node))} - {HOST}
    options = {entry["name"]: _choice(entry) for entry in decided.backends}
    chosen = [load_chosen(ctx.registry, options.get(name, BackendChoice(name))) for name in sorted(names)]
    return CompiledModel(model, decided, engines_of((*chosen, ctx.host), ctx.registry))


def verify(
    original: Model | str | Path,
    result: CompiledModel | Model | str | Path,
    data: object = None,
    *,
    seed: int = 0,
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Compare the outputs of two models on the same inputs; the original runs on the host, in the types it has.

    Args:
        original: A model or its path.
        result: What `compile` gave, the folder it was saved in, or any other model.
        data: See `dovetail.verification.data.batches`; one batch of random inputs by default.
        seed: For random inputs.
        plugins: The plugins to use.
        progress: Called with (what, done, total).

    Raises:
        DovetailError: One of both cannot be run, or the data does not fit.
    """
    from dovetail.compiled import CompiledModel

    ctx = _context(Request(), plugins)
    original = open(original) if isinstance(original, (str, Path)) else original
    if isinstance(result, (str, Path)):
        result = load(result, plugins) if Path(result).is_dir() else open(result)
    run = _runner(result) if isinstance(result, CompiledModel) else _reference(result, ctx)
    return _verify(original, _reference(original, ctx), run, data, seed, progress)


def explain(plan_or_folder: Plan | str | Path, node: str) -> list[str]:
    """Why `node` is where it is: its placement, its remarks, those of the nodes that forced it, and what helps.

    Raises:
        DovetailError: The plan has no such node.
    """
    from dovetail.planning.explain import explain_node
    from dovetail.planning.plan import Plan

    decided = Plan.load(plan_or_folder) if isinstance(plan_or_folder, (str, Path)) else plan_or_folder
    return explain_node(decided, node)


def _copy(model: Model) -> Model:
    """A model to work on; one whose graph nobody has looked at yet is opened once more, which costs less."""
    return open(model.path) if model.untouched and model.path is not None else model.clone()


def _request(backends: Sequence[str | BackendChoice], **choices: Any) -> Request:
    if not backends and choices.get("plan") is None:
        raise UsageError("no backend is named", "name at least one; `dovetail backends` lists them")
    return Request.of(*backends, **choices)


def _choice(entry: Mapping[str, Any]) -> BackendChoice:
    return BackendChoice(entry["name"], dict(entry.get("options", {})))


def _context(request: Request, plugins: PluginSet | None) -> Context:
    from dovetail.passes.context import Context
    from dovetail.plugins import load_plugins

    return Context(request, plugins=plugins or load_plugins())


def _run(model: Model, ctx: Context, stages: Sequence[str], progress, instrumentation) -> None:
    from dovetail.passes.composition import compose
    from dovetail.passes.instrumentation import Instrumentation

    pipeline = compose(ctx.registry, stages, ctx.request, ctx.plugins)
    with without_collections():
        pipeline.run(model, ctx, instrumentation or Instrumentation(progress=progress))


def _recognised(model: Model, engines, ctx: Context) -> CompiledModel:
    """The result that `model` is already."""
    from dovetail.compiled import PLAN, CompiledModel
    from dovetail.planning.annotations import read_annotations
    from dovetail.planning.plan import Plan

    read_annotations(model)
    beside = model.path.parent / PLAN
    ctx.remark("passed", "", "recognised", "this model is the result of the same request; it stays as it is")
    decided = Plan.load(beside) if beside.is_file() else Plan.extract(model, ctx)
    return CompiledModel(model, decided, engines, unchanged=model.path)


def _reference(model: Model, ctx: Context) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Runs `model` on the host's engines, in the types it has."""
    from dovetail.runtime.engines import engines_of
    from dovetail.runtime.executor import Executor
    from dovetail.runtime.regions import slices

    return Executor(model, engines_of([ctx.host], ctx.registry), regions=slices(model.graph)).run


def _runner(compiled: CompiledModel) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Runs a result on the data of its original."""
    from dovetail.verification.data import fitted

    return lambda feeds: compiled.run(fitted(compiled.model, feeds))


def _verify(original, reference, run, data, seed, progress) -> Verification:
    from dovetail.verification import verify as compare

    return compare(original, reference, run, data, seed, progress)
