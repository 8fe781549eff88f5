"""The functions that the command line and Python users call; each does one thing from model to result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dovetail.compiler.driver import Driver, compile_job
from dovetail.compiler.listing import BackendInfo, backends
from dovetail.compiler.option_chain import OptionChain
from dovetail.compiler.running import input_data
from dovetail.errors import UsageError
from dovetail.passes.context import Context
from dovetail.passes.instrumentation import Instrumentation
from dovetail.passes.request import BackendChoice, Request
from dovetail.plugin.loader import load_plugins
from dovetail.plugin.output import own_output

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from dovetail.compiler.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.passes import Pass
    from dovetail.planning.edits import Edit
    from dovetail.planning.plan import Plan
    from dovetail.plugin.loader import PluginSet

__all__ = ["AnyModel", "BackendInfo", "backends", "compile", "load", "open", "plan", "requested"]

Progress = Callable[[str, int, int], None]
AnyModel: TypeAlias = "Model | str | Path | onnx.ModelProto | onnx_ir.Model | bytes"
"""A model in memory, or the path of one."""


def open(model: AnyModel, plugins: PluginSet | None = None) -> Model:
    """Open a model; the weights of an ONNX file stay on disk.

    Args:
        model: The path of a file that an installed front end reads, or a model in memory; see
            `dovetail.compiler.frontends.open_any`.
        plugins: The plugins whose front ends are asked; by default all that are installed.

    Raises:
        DovetailError: The model cannot be read, or is invalid.
    """
    from dovetail.compiler.frontends import open_any

    return open_any(model, plugins)


def plan(
    model: AnyModel,
    backends: str | BackendChoice | Sequence[str | BackendChoice] = (),
    *,
    strategy: str | None = None,
    solver: str = "forward",
    costs: str | Path | None = None,
    pins: str | Sequence[str] = (),
    edits: str | Sequence[str | Edit] = (),
    low: str | Sequence[str] = (),
    high: str | Sequence[str] = (),
    keep_io_types: bool = True,
    freeze_inputs: bool = False,
    data: object = None,
    passes: Sequence[Pass] = (),
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
    instrumentation: Instrumentation | None = None,
    **options: Any,
) -> Plan:
    """Decide where and in what every node of `model` is computed, without changing it.

    Args:
        model: The model, its path, or what else `dovetail.open` takes.
        backends: `NAME` or `NAME:key=value,...`, one or several in order of preference; the host takes what they leave.
        strategy: A strategy to use instead of the one that each backend names.
        solver: How precisions are chosen.
        costs: What `min-cut` counts: the path of a cost table, or the name of one that a plugin brings.
        pins: Manual choices, `SELECTOR=backend/precision`.
        edits: Changes of the graph by name, `KIND=NODE[:before|after]`; plugins bring the kinds.
        low: Selectors of nodes that shall be computed in the low precision whatever their policy is.
        high: Selectors of nodes that shall be computed in the types of the source model.
        keep_io_types: Keep the types of the model's inputs and outputs.
        freeze_inputs: Take inputs that have a default for constants: nobody will give another value.
        data: Data for passes that measure; see `dovetail.input_data`.
        passes: Passes of your own that join those of the plugins, each in the stage that its class names.
        plugins: The plugins to use; by default all that are installed.
        progress: Called with (what, done, total).
        instrumentation: What to print and verify on the way.
        options: Keyword arguments that installed plugins add.

    Raises:
        UsageError: No installed plugin adds a keyword that is given.
        DovetailError: The model or the request is at fault.
    """
    choices = {
        "strategy": strategy, "solver": solver, "costs": costs, "pins": pins, "edits": edits, "low": low, "high": high,
    }  # fmt: skip
    plugins = plugins or load_plugins()
    chosen = OptionChain(plugins.registry, options, "plan")
    original = open(model, plugins)
    request = _request(backends, keep_io_types=keep_io_types, freeze_inputs=freeze_inputs, data=data, **choices)
    ctx = Context(_checked(chosen.requested(request, original)), plugins=plugins)
    ctx.load_backends()
    if ctx.request.data is not None:
        input_data(ctx.request.data).check(original)
    watch = instrumentation or Instrumentation(progress=progress and own_output()(progress))
    decided = Driver(original, ctx, passes, watch).decide()[1]
    return chosen.planned(decided, original, ctx)


def compile(
    model: AnyModel,
    backends: str | BackendChoice | Sequence[str | BackendChoice] = (),
    *,
    data: object = None,
    plan: Plan | str | Path | None = None,
    strategy: str | None = None,
    solver: str = "forward",
    costs: str | Path | None = None,
    pins: str | Sequence[str] = (),
    edits: str | Sequence[str | Edit] = (),
    low: str | Sequence[str] = (),
    high: str | Sequence[str] = (),
    keep_io_types: bool = True,
    freeze_inputs: bool = False,
    try_engines: bool | None = None,
    passes: Sequence[Pass] = (),
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
    instrumentation: Instrumentation | None = None,
    keep: Callable[[CompiledModel], None] | None = None,
    **options: Any,
) -> CompiledModel:
    """Carry a plan out: give every node its backend and precision, with exactly the conversions that needs.

    A model that the same request compiled before is recognized and given back as it is.

    Args:
        model: The model, its path, or what else `dovetail.open` takes; a model that is passed in is not changed.
        data: Inputs to measure on, and for options that run the result; see `dovetail.input_data`.
        plan: A plan to replay, or its path. Its backends are used where `backends` names none.
        try_engines: Load the result on the engines that the backends are made for, and place elsewhere what they
            refuse: always (True), never (False), or unless the model is large or a plan is replayed (None).
        keep: Called with the result before an option looks at it, and in any case before it is returned: whatever comes
            of looking at it, a result that is saved here is there.
        options: Keyword arguments that installed plugins add. `dovetail-verify` adds `verify`, `input_shapes` and the
            accuracy goals; see `dovetail_verify.option`.
        backends, strategy, solver, costs, pins, edits, low, high, keep_io_types, freeze_inputs, passes, plugins,
            progress,
            instrumentation: As for `plan`.

    Raises:
        UsageError: No installed plugin adds a keyword that is given.
        ResultError: The result is whole, and an option found something wrong with it; the error holds it.
        DovetailError: The model or the request is at fault.
    """
    plugins = plugins or load_plugins()
    chosen = OptionChain(plugins.registry, options)
    original = open(model, plugins)
    planned, backends = _replayed(plan, backends, plugins)
    request = _request(
        backends, data=data, plan=planned, strategy=strategy, solver=solver, costs=costs, pins=pins, edits=edits,
        low=low, high=high, keep_io_types=keep_io_types, freeze_inputs=freeze_inputs,
    )  # fmt: skip
    request = _checked(chosen.requested(request, original))
    return compile_job(
        original, request, chosen, plugins=plugins, passes=passes, try_engines=try_engines, keep=keep,
        progress=progress, instrumentation=instrumentation,
    )  # fmt: skip


def load(folder: str | Path, plugins: PluginSet | None = None) -> CompiledModel:
    """Read back what `CompiledModel.save` wrote.

    The files must belong together: a result whose model was exchanged or edited is refused. A plan or remarks that were
    edited or removed are not taken, and a remark says so. A model file alone, or a folder without `result.json`, is
    taken as it is.

    Raises:
        DovetailError: The folder holds no compiled model or one that was altered, or a backend is not installed.
    """
    from dovetail.compiler.compiled import CompiledModel
    from dovetail.compiler.stores import loaded

    plugins = plugins or load_plugins()
    return loaded(folder, "load", CompiledModel, plugins.registry, plugins)


def requested(backends: str | BackendChoice | Sequence[str | BackendChoice], **choices: Any) -> Request:
    """The request that keyword arguments as those of `plan` stand for.

    Raises:
        UsageError: No backend is named, and no plan to replay.
    """
    return _checked(_request(backends, **choices))


def _request(backends: str | BackendChoice | Sequence[str | BackendChoice], **choices: Any) -> Request:
    if isinstance(backends, (str, BackendChoice)):
        backends = (backends,)
    data = choices.pop("data", None)
    return Request.of(*backends, **choices, data=None if data is None else input_data(data).given)


def _checked(request: Request) -> Request:
    if not request.backends and request.plan is None:
        raise UsageError("no backend is named", "add --backend NAME (repeatable); `dovetail backends` lists them")
    return request


def _choice(entry: Mapping[str, Any]) -> BackendChoice:
    return BackendChoice(entry["name"], dict(entry.get("options", {})))


def _replayed(plan: Plan | str | Path | None, backends: Any, plugins: PluginSet) -> tuple[Plan | None, Any]:
    """The plan to replay, if any, and the backends of the request, which are the plan's where it names none."""
    from dovetail.passes.backends import check_installed
    from dovetail.planning.plan import Plan

    planned = Plan.load(plan, plugins.registry) if isinstance(plan, (str, Path)) else plan
    if planned is not None and not backends:
        check_installed(plugins.registry, planned.backends)
        backends = [_choice(entry) for entry in planned.backends]
    return planned, backends
