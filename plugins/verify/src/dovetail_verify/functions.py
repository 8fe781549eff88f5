"""The functions that Python users call as `dovetail.verify` and `dovetail.bisect`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import dovetail
from dovetail.api import AnyModel, requested
from dovetail.compiled import CompiledModel
from dovetail.driver import Driver
from dovetail.errors import UsageError
from dovetail.option_chain import OptionChain
from dovetail.passes.context import Context
from dovetail.passes.instrumentation import Instrumentation
from dovetail.passes.request import BackendChoice, Request
from dovetail.plugin.loader import load_plugins
from dovetail_runtime.data.input_data import input_data
from dovetail_runtime.engines import engines_of

from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.accuracy.ranking import rank
from dovetail_verify.arguments import shapes_of
from dovetail_verify.runners import compared, trials_of

if TYPE_CHECKING:
    from dovetail.passes import Pass
    from dovetail.planning.edits import Edit
    from dovetail.plugin.loader import PluginSet

    from dovetail_verify.accuracy.ranking import Ranking
    from dovetail_verify.arguments import InputShapes
    from dovetail_verify.compare import Verification


Progress = Callable[[str, int, int], None]


def verify(
    original: AnyModel,
    result: CompiledModel | AnyModel,
    data: object = None,
    *,
    seed: int = 0,
    input_shapes: InputShapes = None,
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
        data: See `dovetail_runtime.data.sources.read_data`; one batch of random inputs by default.
        seed: For random inputs.
        input_shapes: Shapes of random inputs where the model leaves them open: by name, or texts as the command takes.
        min_snr, min_cosine, min_top1, max_abs: Accuracy goals; what of them is not met is `missed` in the result. They
            need data.
        plugins: The plugins to use.
        progress: Called with (what, done, total).

    Raises:
        DovetailError: One of both cannot be run, or the data does not fit.
    """
    goals = Goals(min_snr, min_cosine, cast("float | None", min_top1), max_abs)  # it reads a text
    goals.check_data(data)
    plugins = plugins or load_plugins()
    ctx = Context(Request(), plugins=plugins)
    original = dovetail.open(original, plugins)
    if isinstance(result, (str, Path)):
        result = dovetail.load(result, plugins) if Path(result).is_dir() else dovetail.open(result, plugins)
    elif not isinstance(result, CompiledModel):
        result = dovetail.open(result, plugins)
    data = None if data is None else input_data(data).given
    verification = compared(original, result, data, seed, shapes_of(input_shapes, original), progress, ctx)
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
    """Find the nodes that cost a request its accuracy, and what to raise to repair it.

    Groups of nodes are kept low with everything else high, and split where they make the most noise; the worst node is
    found in about as many runs as its number has bits. One more run, part by part, looks at every node by itself.

    Args:
        data: The inputs to measure on; see `dovetail_runtime.data.sources.read_data`.
        min_snr, min_cosine, min_top1, max_abs: What `Ranking.high` shall meet; without any of them, an SNR that is
            10 dB better.
        runs: How many runs refine the ranking; more tell more nodes apart.
        model, backends, strategy, solver, costs, pins, edits, low, high, keep_io_types, freeze_inputs, passes, plugins,
            progress: As for `compile`.
        options: Keyword arguments that installed plugins add to `bisect`, such as `fix_shapes`.

    Raises:
        UsageError: No installed plugin adds a keyword that is given.
        DovetailError: The model, the request or the data is at fault, or no node may be raised.
    """
    if data is None:
        raise UsageError("there is no data to rank nodes on", "give --data: inputs like those that the model will see")
    if runs is not None and runs < 1:
        raise UsageError(f"{runs} runs rank nothing", "leave --runs out, or give a number above 0")
    goals = Goals(min_snr, min_cosine, cast("float | None", min_top1), max_abs)  # it reads a text
    plugins = plugins or load_plugins()
    chosen = OptionChain(plugins.registry, options, "bisect")
    original = dovetail.open(model, plugins)
    goals.check_model(original)
    request = requested(
        backends, data=data, keep_io_types=keep_io_types, freeze_inputs=freeze_inputs, strategy=strategy, solver=solver,
        costs=costs, pins=pins, edits=edits, low=low, high=high,
    )  # fmt: skip
    request = chosen.requested(request, original)
    ctx = Context(request, plugins=plugins)
    ctx.load_backends()
    input_data(request.data).check(original)
    driver = Driver(original, ctx, passes, Instrumentation(progress=progress))
    trials = trials_of(original, driver.compile, "bisecting", request, ctx, progress)
    return rank(trials, request, engines_of([ctx.host], ctx.registry), goals, runs)
