"""The function that Python users call as `dovetail.layer_errors`, and what it shares with the commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dovetail
from dovetail.compiled import CompiledModel
from dovetail.driver import Driver
from dovetail.errors import DovetailError, UsageError
from dovetail.passes.context import Context
from dovetail.passes.instrumentation import Instrumentation
from dovetail.passes.request import BackendChoice, Request
from dovetail.plugin.loader import load_plugins
from dovetail_runtime.data.input_data import input_data
from dovetail_runtime.engines import engines_of

from dovetail_verify.layer_search import find_layer_errors
from dovetail_verify.orders import check_order

if TYPE_CHECKING:
    from dovetail.api import AnyModel
    from dovetail.ir.model import Model
    from dovetail.passes import Pass
    from dovetail.planning.plan import Plan
    from dovetail.plugin.loader import PluginSet

    from dovetail_verify.layers import LayerErrors


Progress = Callable[[str, int, int], None]


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
        result: What `compile` gave, or the folder that it was saved in.
        data: Inputs like those that the model will see; see `dovetail_runtime.data.sources.read_data`.
        by: What to rank by: `accumulated` or `alone` (signal to noise), `outputs`, `cosine` or `mse`.
        outputs: For how many nodes, the worst alone, the effect at the outputs is measured. Each takes a run per batch.
        passes: Passes that `compile` was given.
        plugins: The plugins to use; those that the result was compiled with.
        progress: Called with (what, done, total).

    Raises:
        UsageError: There is no data, `result` is no result of `compile`, or an argument makes no sense.
        DovetailError: The data does not fit, the model is another one, or it cannot be run on the host.
    """
    check_order(by)
    if data is None:
        raise UsageError("there is no data to look at layers with", "give --data: inputs like those the model will see")
    if outputs < 0:
        raise UsageError(f"outputs={outputs}: a number from 0 is expected")
    plugins = plugins or load_plugins()
    original = dovetail.open(original, plugins)
    if isinstance(result, (str, Path)) and Path(result).is_dir():
        result = dovetail.load(result, plugins)
    if not isinstance(result, CompiledModel) or result.plan is None:
        raise UsageError(
            f"{result} is no result of a compilation, so nothing says which of its nodes are which of the original",
            "give the folder that `dovetail compile -o FOLDER` wrote",
        )
    given = input_data(data)
    given.check(original)
    request = _request_of(result.plan, plugins)
    ctx = Context(request, plugins=plugins)
    return layers_of_request(original, result, given.given, ctx, passes, by=by, outputs=outputs, progress=progress)


def layers_of_request(
    original: Model, result: CompiledModel, data: object, ctx: Context, passes: Sequence[Pass] = (), **options: Any
) -> LayerErrors:
    """The errors of the layers of a result that was compiled for the request of `ctx`.

    Args:
        original: The model that was compiled.
        result: The result.
        data: See `dovetail_runtime.data.sources.read_data`.
        ctx: A context of this request, which gets the remarks of the passes that prepare the model.
        passes: Passes that were given beside those of plugins.
        options: See `find_layer_errors`.

    Raises:
        DovetailError: The model cannot be prepared or run, or the data does not fit.
    """
    ctx.load_backends()
    exact = Driver(original, ctx, passes, Instrumentation(progress=options.get("progress"))).prepare()
    engines = engines_of([ctx.host], ctx.registry)
    return find_layer_errors(original, exact, result, data, engines, **options)


def _request_of(plan: Plan, plugins: PluginSet) -> Request:
    """The request that a plan was made for; a replayed plan knows only the backends."""
    recorded = plan.summary.get("request")
    if recorded:
        request = Request.from_dict({**recorded, "data": None})
    else:
        request = Request(
            tuple(
                BackendChoice(entry["name"], {**entry.get("options", {}), "strategy": entry["strategy"]})
                for entry in plan.backends
            )
        )
    for choice in request.backends:
        if choice.name not in plugins.registry.backend:
            raise DovetailError(
                f"the result was compiled for the backend '{choice.name}', which is not installed",
                "install the distribution that brings it",
            )
    return request
