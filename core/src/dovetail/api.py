"""The functions that the command line and Python users call; each does one thing from model to result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dovetail.accuracy.goals import Goals
from dovetail.comparing import compared, trials_of
from dovetail.compilation import DECIDE, compile_model, preferred_engines, run_stages
from dovetail.errors import DovetailError, GoalError, UsageError, VerificationError
from dovetail.listing import BackendInfo, backends
from dovetail.loading import recognised
from dovetail.passes.request import BackendChoice, Request
from dovetail.stamp import STAMP, stamp_for
from dovetail.verification.sources import as_data

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from dovetail.accuracy.ranking import Ranking
    from dovetail.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.passes import Context, Instrumentation, Pass
    from dovetail.planning.plan import Plan
    from dovetail.plugin.loader import PluginSet
    from dovetail.verification import Verification

__all__ = ["BackendInfo", "backends", "bisect", "compile", "explain", "load", "open", "plan", "verify"]

Progress = Callable[[str, int, int], None]
AnyModel: TypeAlias = "Model | str | Path | onnx.ModelProto | onnx_ir.Model | bytes"
"""A model in memory, or the path of one."""


def open(model: AnyModel) -> Model:
    """Open an ONNX model; the weights of a file stay on disk. See `dovetail.ir.coercion.as_model`."""
    from dovetail.ir.coercion import as_model

    return as_model(model)


def plan(
    model: AnyModel,
    backends: str | BackendChoice | Sequence[str | BackendChoice] = (),
    *,
    strategy: str | None = None,
    solver: str = "forward",
    costs: str | Path | None = None,
    pins: str | Sequence[str] = (),
    low: str | Sequence[str] = (),
    high: str | Sequence[str] = (),
    keep_io_types: bool = True,
    data: object = None,
    passes: Sequence[Pass] = (),
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
    instrumentation: Instrumentation | None = None,
) -> Plan:
    """Decide where and in what every node of `model` is computed, without changing it.

    Args:
        model: The model, its path, or what else `dovetail.open` takes.
        backends: `NAME` or `NAME:key=value,...`, one or several in order of preference; the host takes what they leave.
        strategy: A strategy to use instead of the one that each backend names.
        solver: How precisions are chosen.
        costs: What `min-cut` counts: the path of a cost table, or the name of one that a plugin brings.
        pins: Manual choices, `SELECTOR=backend/precision`.
        low: Selectors of nodes that shall be computed in the low precision whatever their policy is.
        high: Selectors of nodes that shall be computed in the types of the source model.
        keep_io_types: Keep the types of the model's inputs and outputs.
        data: Data for passes that measure; see `dovetail.verification.sources.read_data`.
        passes: Passes of your own that join those of the plugins, each in the stage that its class names.
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
    original = open(model)
    ctx.load_backends()
    _check_data(original, request.data)
    work = _copy(original)
    run_stages(work, ctx, DECIDE, instrumentation or _watching(progress), passes)
    return Plan.extract(work, ctx, original)


def compile(
    model: AnyModel,
    backends: str | BackendChoice | Sequence[str | BackendChoice] = (),
    *,
    data: object = None,
    verify: bool | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    plan: Plan | str | Path | None = None,
    strategy: str | None = None,
    solver: str = "forward",
    costs: str | Path | None = None,
    pins: str | Sequence[str] = (),
    low: str | Sequence[str] = (),
    high: str | Sequence[str] = (),
    keep_io_types: bool = True,
    min_snr: float | None = None,
    min_cosine: float | None = None,
    min_top1: float | str | None = None,
    max_abs: float | None = None,
    try_engines: bool | None = None,
    passes: Sequence[Pass] = (),
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
    instrumentation: Instrumentation | None = None,
) -> CompiledModel:
    """Carry a plan out: give every node its backend and precision, with exactly the conversions that needs.

    A model that the same request compiled before is recognised and given back as it is.

    Args:
        model: The model, its path, or what else `dovetail.open` takes; a model that is passed in is not changed.
        data: Inputs to measure and to verify the result on; see `dovetail.verification.sources.read_data`.
        verify: Compare the result with the original; by default when there is data, on random inputs if there is none.
        input_shapes: Shapes of random inputs, by name, where the model leaves them open.
        plan: A plan to replay, or its path. Its backends are used where `backends` names none.
        min_snr, min_cosine, min_top1, max_abs: Accuracy goals, which every float output must meet on the data; see
            `dovetail.accuracy.Goals`. What costs the accuracy is raised to the types of the source model, as little
            as possible; the remarks and `plan.summary["accuracy"]` say what and why.
        try_engines: Load the result on the engines that the backends are made for, and place elsewhere what they
            refuse: always (True), never (False), or unless the model is large or a plan is replayed (None).
        backends, strategy, solver, costs, pins, low, high, keep_io_types, passes, plugins, progress, instrumentation:
            As for `plan`.

    Raises:
        GoalError: The goals cannot be met; the error holds the most accurate result.
        VerificationError: The result could not be compared with the original; the error holds it.
        DovetailError: The model or the request is at fault.
    """
    from dovetail.accuracy.raising import meet_goals
    from dovetail.accuracy.record import recorded_failure
    from dovetail.runtime.engines import engines_of

    goals = Goals(min_snr, min_cosine, min_top1, max_abs)
    goals.check_data(data, verify)
    original = open(model)
    planned, backends = _replayed(plan, backends)
    choices = {"strategy": strategy, "solver": solver, "costs": costs, "pins": pins, "low": low, "high": high}
    choices |= {"goals": goals.as_dict(), "keep_io_types": keep_io_types}
    request = _request(backends, data=data, plan=planned, **choices)
    ctx = _context(request, plugins)
    engines = engines_of((*ctx.backends, ctx.host), ctx.registry)
    if planned is not None:
        try_engines = bool(try_engines)
    stamp = stamp_for(request, ctx, passes, preferred_engines(engines, try_engines))
    compiled = recognised(original, stamp, engines, ctx)
    failure = None
    if compiled is not None and goals:
        # What it was compiled from is not there to measure it again, and need not be.
        failure = recorded_failure(compiled, goals)
    elif compiled is None:
        _check_data(original, request.data)

        watch = instrumentation or _watching(progress)

        def carry_out() -> CompiledModel:
            return compile_model(
                original, lambda: _copy(original), ctx, engines, passes=passes, instrumentation=watch,
                try_engines=try_engines,
            )  # fmt: skip

        if goals:
            trials = trials_of(original, carry_out, str(goals), request, ctx, progress)
            outcome = meet_goals(trials, request, goals, engines_of([ctx.host], ctx.registry))
            compiled, failure = outcome.compiled, outcome.failure
        else:
            compiled = carry_out()
        compiled.source = original.path and original.path.absolute()
        compiled.model.ir.metadata_props[STAMP] = stamp
    if compiled.verification is None and (verify or verify is None and data is not None):
        try:
            compiled.verification = compared(
                original, compiled, request.data, request.seed, input_shapes, progress, ctx
            )
        except DovetailError as error:
            raise VerificationError(compiled, error) from error
    if failure is not None:
        raise GoalError(compiled, failure)
    return compiled


def load(folder: str | Path, plugins: PluginSet | None = None) -> CompiledModel:
    """Read back what `CompiledModel.save` wrote.

    The files must belong together: a result whose model was exchanged or edited is refused. A plan or remarks that were
    edited or removed are not taken, and a remark says so. A model file alone, or a folder without `result.json`, is
    taken as it is.

    Raises:
        DovetailError: The folder holds no compiled model or one that was altered, or a backend is not installed.
    """
    from dovetail.loading import load_result

    return load_result(Path(folder), plugins)


def verify(
    original: AnyModel,
    result: CompiledModel | AnyModel,
    data: object = None,
    *,
    seed: int = 0,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    min_snr: float | None = None,
    min_cosine: float | None = None,
    min_top1: float | str | None = None,
    max_abs: float | None = None,
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Compare the outputs of two models on the same inputs; the original runs on the host, in the types it has.

    Args:
        original: A model or its path.
        result: What `compile` gave, the folder it was saved in, or any other model.
        data: See `dovetail.verification.sources.read_data`; one batch of random inputs by default.
        seed: For random inputs.
        input_shapes: Shapes of random inputs, by name, where the model leaves them open.
        min_snr, min_cosine, min_top1, max_abs: Accuracy goals; what of them is not met is `missed` in the result. They
            need data.
        plugins: The plugins to use.
        progress: Called with (what, done, total).

    Raises:
        DovetailError: One of both cannot be run, or the data does not fit.
    """
    from dovetail.compiled import CompiledModel

    goals = Goals(min_snr, min_cosine, min_top1, max_abs)
    goals.check_data(data)
    ctx = _context(Request(), plugins)
    original = open(original)
    if isinstance(result, (str, Path)):
        result = load(result, plugins) if Path(result).is_dir() else open(result)
    elif not isinstance(result, CompiledModel):
        result = open(result)
    verification = compared(original, result, as_data(data), seed, input_shapes, progress, ctx)
    verification.missed = goals.missed(verification)
    return verification


def bisect(
    model: AnyModel,
    backends: str | BackendChoice | Sequence[str | BackendChoice] = (),
    *,
    data: object,
    min_snr: float | None = None,
    min_cosine: float | None = None,
    min_top1: float | str | None = None,
    max_abs: float | None = None,
    runs: int | None = None,
    strategy: str | None = None,
    solver: str = "forward",
    costs: str | Path | None = None,
    pins: str | Sequence[str] = (),
    low: str | Sequence[str] = (),
    high: str | Sequence[str] = (),
    keep_io_types: bool = True,
    passes: Sequence[Pass] = (),
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
) -> Ranking:
    """Find the nodes that cost a request its accuracy, and what to raise to repair it.

    Groups of nodes are kept low with everything else high, and split where they make the most noise; the worst node is
    found in about as many runs as its number has bits. One more run, part by part, looks at every node by itself.

    Args:
        data: The inputs to measure on; see `dovetail.verification.sources.read_data`.
        min_snr, min_cosine, min_top1, max_abs: What `Ranking.high` shall meet; without any of them, an SNR that is
            10 dB better.
        runs: How many runs refine the ranking; more tell more nodes apart.
        model, backends, strategy, solver, costs, pins, low, high, keep_io_types, passes, plugins, progress: As for
            `compile`.

    Raises:
        DovetailError: The model, the request or the data is at fault, or no node may be raised.
    """
    from dovetail.accuracy.ranking import rank
    from dovetail.runtime.engines import engines_of

    if data is None:
        raise UsageError("there is no data to rank nodes on", "give --data: inputs like those that the model will see")
    if runs is not None and runs < 1:
        raise UsageError(f"{runs} runs rank nothing", "leave --runs out, or give a number above 0")
    goals = Goals(min_snr, min_cosine, min_top1, max_abs)
    original = open(model)
    choices = {"strategy": strategy, "solver": solver, "costs": costs, "pins": pins, "low": low, "high": high}
    request = _request(backends, data=data, keep_io_types=keep_io_types, **choices)
    ctx = _context(request, plugins)
    engines = engines_of((*ctx.backends, ctx.host), ctx.registry)
    _check_data(original, request.data)
    watch = _watching(progress)

    def carry_out() -> CompiledModel:
        return compile_model(original, lambda: _copy(original), ctx, engines, passes=passes, instrumentation=watch)

    trials = trials_of(original, carry_out, "bisecting", request, ctx, progress)
    return rank(trials, request, engines_of([ctx.host], ctx.registry), goals, runs)


def explain(result: CompiledModel | Plan | str | Path, selector: str | None = None) -> list[str]:
    """Why nodes are where they are.

    Args:
        result: What `compile` or `plan` gave, the folder that a result was saved in, or the path of a plan.
        selector: A selector (see `dovetail.planning.selectors.select`), also of nodes that only the source model has.
            One node is explained with its remarks, those of the nodes that forced it, and what would help; several are
            grouped by their reasons. Without it, the whole model is.

    Raises:
        DovetailError: Nothing matches the selector, or there is no plan.
    """
    from dovetail.planning.explain import explain_plan
    from dovetail.planning.plan import Plan

    decided = Plan.load(result) if isinstance(result, (str, Path)) else getattr(result, "plan", result)
    return explain_plan(decided, selector)


def _copy(model: Model) -> Model:
    """A model to work on."""
    return model.clone()


def _request(backends: Sequence[str | BackendChoice], **choices: Any) -> Request:
    if isinstance(backends, (str, BackendChoice)):
        backends = (backends,)
    if not backends and choices.get("plan") is None:
        raise UsageError("no backend is named", "name at least one; `dovetail backends` lists them")
    return Request.of(*backends, **{**choices, "data": as_data(choices.get("data"))})


def _choice(entry: Mapping[str, Any]) -> BackendChoice:
    return BackendChoice(entry["name"], dict(entry.get("options", {})))


def _context(request: Request, plugins: PluginSet | None) -> Context:
    from dovetail.passes.context import Context
    from dovetail.plugin.loader import load_plugins

    return Context(request, plugins=plugins or load_plugins())


def _replayed(plan: Plan | str | Path | None, backends: Any) -> tuple[Plan | None, Any]:
    """The plan to replay, if any, and the backends of the request, which are the plan's where it names none."""
    from dovetail.planning.plan import Plan

    planned = Plan.load(plan) if isinstance(plan, (str, Path)) else plan
    if planned is not None and not backends:
        backends = [_choice(entry) for entry in planned.backends]
    return planned, backends


def _check_data(model: Model, data: object) -> None:
    """Look at the first batch, so that data which does not fit is an error before any work is done."""
    from dovetail.verification.data import batches

    if data is not None:
        next(batches(model, data), None)


def _watching(progress: Progress | None) -> Instrumentation:
    from dovetail.passes.instrumentation import Instrumentation

    return Instrumentation(progress=progress)
