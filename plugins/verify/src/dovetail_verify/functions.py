"""Implementation of `dovetail.verify`, `dovetail.bisect`, `dovetail.layer_errors` and `dovetail.program_errors`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import dovetail
from dovetail.api import AnyModel, named_backends, requested
from dovetail.compiler import Driver, FoundPolicy, OptionPhases, Search
from dovetail.errors import UsageError
from dovetail.passes import BackendChoice, Context, Instrumentation, Request
from dovetail.plugin import CompiledModel, load_plugins
from dovetail_runtime.data.batches import as_given
from dovetail_runtime.data.data_split import Use, split_data
from dovetail_runtime.data.input_data import input_data
from dovetail_runtime.engines import engines_of
from dovetail_runtime.nested_graphs import with_nodes

from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.accuracy.ranking import Ranked
from dovetail_verify.accuracy.trials import AccuracyTrials
from dovetail_verify.arguments import decibels_of, shapes_of
from dovetail_verify.compiled_from import exact_model, fill_in_nodes, request_of_result
from dovetail_verify.held_out import fixed_shapes, seen_before
from dovetail_verify.layer_parts import LayerParts
from dovetail_verify.layer_search import find_layer_errors
from dovetail_verify.layers import check_order
from dovetail_verify.measures import Compared
from dovetail_verify.own_kernels import doubts_about
from dovetail_verify.parts import compared, engines_that_ran
from dovetail_verify.programs import measured_programs
from dovetail_verify.runners import reference_runner, source_runner

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Pass
    from dovetail.planning import Edit
    from dovetail.plugin import PluginSet

    from dovetail_verify.accuracy.ranking import Ranking
    from dovetail_verify.arguments import InputShapes
    from dovetail_verify.compare import OutputVerification
    from dovetail_verify.layers import LayerErrors
    from dovetail_verify.programs import ProgramErrors


Progress = Callable[[str, int, int], None]


def verify(
    original: AnyModel,
    result: CompiledModel | AnyModel,
    data: object = None,
    *,
    seed: int = 0,
    input_shapes: InputShapes = None,
    executor: str = "",
    min_snr: float | None = None,
    min_cosine: float | None = None,
    min_top1: float | str | None = None,
    max_abs: float | None = None,
    max_kl: float | None = None,
    max_perplexity_rise: float | str | None = None,
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
) -> OutputVerification:
    """Compare the outputs of two models on the same inputs; the original runs on the host, in its own types.

    Args:
        original: A model or its path.
        result: A result of `compile`, the folder it was saved in, or any other model.
        data: See `dovetail_runtime.data.sources.read_data`; one batch of random inputs by default.
        seed: Seed of random inputs.
        input_shapes: Shapes of random inputs where the model leaves them open: by name, or texts as the command takes.
        executor: The executor that runs a result of `compile`; by default that which runs region by region.
        min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise:
            Accuracy goals, which require data; violations are in `missed`
            of the result.
        plugins: The plugins to use.
        progress: Called with (what, done, total).

    Raises:
        DovetailError: One of the models cannot be run, or the data does not match.
    """
    goals = Goals.of(min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise)
    goals.check_data(data)
    plugins = plugins or load_plugins()
    ctx = Context(Request(), plugins=plugins)
    original = dovetail.open(original, plugins)
    if isinstance(result, (str, Path)):
        result = dovetail.load(result, plugins) if Path(result).is_dir() else dovetail.open(result, plugins)
    elif not isinstance(result, CompiledModel):
        result = dovetail.open(result, plugins)
    data = None if data is None else input_data(data).given
    verification = compared(original, result, data, shapes_of(input_shapes, original), progress, ctx, seed, executor)
    verification.missed, verification.doubts = goals.missed(verification), goals.doubts(verification)
    verification.doubts += doubts_about(original, verification, data, ctx)
    if data is not None and isinstance(result, CompiledModel) and result.plan is not None:
        verification.held_back = seen_before(result, data)
    if isinstance(result, CompiledModel):
        verification.engines = [executor] if executor else list(verification.ran_on) or engines_that_ran(result)
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
    max_kl: float | None = None,
    max_perplexity_rise: float | str | None = None,
    runs: int | None = None,
    strategy: str | None = None,
    solver: str = "forward",
    costs: str | Path | None = None,
    pins: str | Sequence[str] = (),
    edits: str | Sequence[str | Edit] = (),
    low: str | Sequence[str] = (),
    high: str | Sequence[str] = (),
    keep_io_types: bool = True,
    freeze_inputs: bool = False,
    passes: Sequence[Pass] = (),
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Ranking:
    """Find the nodes that lose a request's accuracy, and the nodes to raise to repair it.

    Groups of nodes are kept low with everything else high, and the noisiest ones are split; the worst node is found in
    about log2(number of nodes) runs. One more run, part by part, measures every node alone.

    Args:
        data: Inputs like those that the model will see; see `dovetail_runtime.data.sources.read_data`. Samples that
            calibrate are not measured on, unless there is only one.
        min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise:
            Goals for `Ranking.high`; without any, 10 dB more.
        runs: Number of runs that refine the ranking; more runs distinguish more nodes.
        model, backends, strategy, solver, costs, pins, edits, low, high, keep_io_types, freeze_inputs, passes, plugins,
            progress: As for `compile`.
        options: Keyword arguments that installed plugins add to `bisect`, such as `fix_shapes`.

    Raises:
        UsageError: No installed plugin adds a keyword that is given.
        DovetailError: The model, the request or the data is invalid, or no node may be raised.
    """
    if data is None:
        raise UsageError("there is no data to rank nodes on", "give --data: inputs like those that the model will see")
    if runs is not None and runs < 1:
        raise UsageError(f"{runs} runs rank nothing", "leave --runs out, or give a number above 0")
    goals = Goals.of(min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise)
    plugins = plugins or load_plugins()
    chosen = OptionPhases(plugins.registry, options, "bisect")
    request = requested(
        named_backends(backends, plugins), data=data, keep_io_types=keep_io_types, freeze_inputs=freeze_inputs,
        strategy=strategy, solver=solver, costs=costs, pins=pins, edits=edits, low=low, high=high,
    )  # fmt: skip
    original = chosen.source(dovetail.open(model, plugins), request)
    goals.check_model(original)
    request = chosen.requested(request, original)
    input_data(request.data).check(original)
    run = source_runner(original, Context(request, plugins=plugins))
    split = split_data(original, request.data, run, fixed=fixed_shapes(request))
    ctx = Context(replace(request, data=split.part(Use.CALIBRATION)), plugins=plugins)
    ctx.load_backends()
    driver = Driver(original, ctx, passes, Instrumentation(progress=progress))
    trials = AccuracyTrials(Compared.on(split.part(Use.JUDGMENT), original, ctx, progress), "high", "bisecting")
    policy = Ranked(trials, request, engines_of([ctx.host], ctx.registry), goals, runs)
    Search(chosen, lambda asked, _: driver.compile(asked)).followed(FoundPolicy(policy), ctx.request)
    ranking = cast("Ranking", policy.ranking)
    return replace(ranking, notes=(split.text, *ranking.notes))


def layer_errors(
    original: AnyModel,
    result: CompiledModel | str | Path,
    data: object,
    *,
    by: str = "accumulated",
    outputs: int = 10,
    passes: Sequence[Pass] = (),
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
) -> LayerErrors:
    """Measure the error of every node of a result: alone on exact inputs, accumulated, and at the outputs.

    Args:
        original: The model that was compiled, or its path.
        result: A result of `compile`, or the folder it was saved in.
        data: Inputs like those that the model will see; see `dovetail_runtime.data.sources.read_data`.
        by: The ranking criterion: `accumulated` or `alone` (signal-to-noise ratio), `outputs`, `cosine` or `mse`.
        outputs: Number of nodes, worst alone first, whose effect on the outputs is measured. Each takes a run per
            batch.
        passes: The passes that were given to `compile`.
        plugins: The plugins with which the result was compiled.
        progress: Called with (what, done, total).

    Raises:
        UsageError: There is no data, `result` is not a result of `compile`, or an argument is invalid.
        DovetailError: The data does not match, the model is another one, or it cannot be run on the host.
    """
    check_order(by)
    if data is None:
        raise UsageError("there is no data to look at layers with", "give --data: inputs like those the model will see")
    if outputs < 0:
        raise UsageError(f"outputs={outputs}: a number from 0 is expected")
    original, result, given, ctx = _opened(original, result, data, plugins or load_plugins())
    return layers_of_request(original, result, given, ctx, passes, by=by, outputs=outputs, progress=progress)


def program_errors(
    original: AnyModel,
    result: CompiledModel | str | Path,
    data: object,
    *,
    min_program_snr: float | str | None = None,
    most: int | None = None,
    passes: Sequence[Pass] = (),
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
) -> ProgramErrors:
    """Compare each program of a result (what an emitter compiled) with the nodes of the plan that it stands for.

    Each program runs on its engine, such as a simulator, on the inputs that its region has in the plan's model; the
    nodes run on the host, in the types of the plan. So the error is that of the vendor's tools alone.

    Args:
        original: The model that was compiled, or its path.
        result: A result of `compile`, or the folder it was saved in.
        data: Inputs like those that the model will see; see `dovetail_runtime.data.sources.read_data`.
        min_program_snr: A limit in decibels for every output of every program; violations are in `missed`.
        most: The most batches to run, since simulators take long; None for all.
        passes: The passes that were given to `compile`.
        plugins: The plugins with which the result was compiled.
        progress: Called with (what, done, total).

    Raises:
        UsageError: There is no data, `result` is not a result of `compile`, it has no programs, or `most` is below 1.
        DovetailError: The data does not match, the model is another one, or the plan cannot be run on the host.
    """
    limit = decibels_of("min_program_snr", min_program_snr)
    if most is not None and most < 1:
        raise UsageError(f"--batches {most}: a number from 1 is expected")
    original, result, given, ctx = _opened(original, result, data, plugins or load_plugins())
    ctx.load_backends()
    fill_in_nodes(original, result, ctx, passes)
    _, *models = as_given(original, given, with_nodes(result))
    return measured_programs(
        original, models[0], result, given, lambda model: reference_runner(model, ctx), limit, most, progress
    )


def _opened(
    original: AnyModel, result: CompiledModel | str | Path, data: object, plugins: PluginSet
) -> tuple[Model, CompiledModel, object, Context]:
    """Open a model and its result, check the data, and return both with a context of the result's request."""
    original = dovetail.open(original, plugins)
    if isinstance(result, (str, Path)) and Path(result).is_dir():
        result = dovetail.load(result, plugins)
    if not isinstance(result, CompiledModel) or result.plan is None:
        raise UsageError(
            f"{result} is no result of a compilation, so nothing says which of its nodes are which of the original",
            "give the folder that `dovetail compile -o FOLDER` wrote",
        )
    if data is None:
        raise UsageError("there is no data to measure on", "give --data: inputs like those that the model will see")
    given = input_data(data)
    given.check(original)
    return original, result, given.given, Context(request_of_result(result.plan, plugins), plugins=plugins)


def layers_of_request(
    original: Model, result: CompiledModel, data: object, ctx: Context, passes: Sequence[Pass] = (), **options: Any
) -> LayerErrors:
    """Measure the errors of the layers of a result compiled for the request of `ctx`.

    Args:
        original: The model that was compiled.
        result: The result.
        data: See `dovetail_runtime.data.sources.read_data`.
        ctx: A context of this request; it receives the remarks of the preparation passes.
        passes: Passes in addition to those of plugins.
        options: See `find_layer_errors`.

    Raises:
        DovetailError: The model cannot be prepared or run, or the data does not match.
    """
    exact, engines = exact_model(original, result, ctx, passes, options.get("progress"))
    parts = None if passes or options.get("most") else LayerParts.of(original, result, data, options.get("progress"))
    return find_layer_errors(original, exact, result, data, engines, parts=parts, **options)
