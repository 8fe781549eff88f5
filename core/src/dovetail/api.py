"""The Python API: the functions behind the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dovetail.compiler.compilation import Compilation
from dovetail.compiler.driver import Driver
from dovetail.compiler.option_phases import OptionPhases
from dovetail.errors import UsageError
from dovetail.passes.instrumentation import Instrumentation
from dovetail.planning.request import BackendChoice, Request
from dovetail.plugin.context import Context
from dovetail.plugin.folders import compiled_folder
from dovetail.plugin.loading.backend_files import use_file
from dovetail.plugin.loading.loader import load_plugins
from dovetail.plugin.loading.output import own_output
from dovetail.plugin.running import input_data

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from dovetail.ir.model import Model
    from dovetail.passes import Pass
    from dovetail.planning.edits import Edit
    from dovetail.planning.plan import Plan
    from dovetail.plugin.compiled import CompiledModel
    from dovetail.plugin.loading.loader import PluginSet

__all__ = [
    "AnyModel",
    "compile",
    "load",
    "load_plan",
    "named_backends",
    "open",
    "plan",
    "plan_text",
    "requested",
    "save",
]

Progress = Callable[[str, int, int], None]
AnyModel: TypeAlias = "Model | str | Path | onnx.ModelProto | onnx_ir.Model | bytes"
"""A model in memory, or the path of one."""


def open(model: AnyModel, plugins: PluginSet | None = None) -> Model:
    """Open a model; the weights of an ONNX file stay on disk.

    Args:
        model: Path of a file that an installed front end reads, or a model in memory; see
            `dovetail.plugin.loading.frontends.open_any`.
        plugins: The plugins whose front ends are tried; all installed ones by default.

    Raises:
        DovetailError: The model cannot be read, or is invalid.
    """
    from dovetail.plugin.loading.frontends import open_any

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
    """Decide the backend and the formats of every node of `model`, without changing it.

    Args:
        model: A model, its path, or any other object that `dovetail.open` takes.
        backends: `NAME` or `NAME:key=value,...`, one or several in order of preference; the path of a backend file may
            stand for the name. The host takes all other nodes.
        strategy: A strategy to use instead of each backend's own.
        solver: The solver that chooses precisions.
        costs: Cost table for the solver `min-cut`: a path, or the name of a registered table.
        pins: Manual placements, `SELECTOR=backend/precision`.
        edits: Graph edits by name, `KIND=NODE[:before|after]`; plugins define the kinds.
        low: Selectors of nodes to compute in the low precision regardless of their policy.
        high: Selectors of nodes to compute in the types of the source model.
        keep_io_types: Keep the types of the model's inputs and outputs.
        freeze_inputs: Turn inputs that have a default value into constants; callers can no longer override them.
        data: Input data for passes that measure; see `dovetail.input_data`.
        passes: The caller's own passes, added to those of plugins, each in the stage that its class names.
        plugins: The plugins to use; all installed ones by default.
        progress: Progress callback, called with (step, done, total).
        instrumentation: What to print and verify between passes.
        options: Keyword arguments that installed plugins add.

    Raises:
        UsageError: No installed plugin adds a keyword that is given.
        DovetailError: The model or the request is at fault.
    """
    choices = _choices(locals())
    plugins = plugins or load_plugins()
    chosen = OptionPhases(plugins.registry, options, "plan")
    backends = named_backends(backends, plugins)
    request = _request(backends, **choices)
    original = chosen.source(open(model, plugins), request)
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
    """Compile `model`: give every node its backend and precision, and insert exactly the conversions this needs.

    If the model is already the result of the same request, it is recognized and returned unchanged.

    Args:
        model: A model, its path, or any other object that `dovetail.open` takes; a model in memory is not changed. For
            the folder of several models that belong together, such as a language model, the result is the
        `dovetail.plugin.CompiledFolder` of its plugin.
        data: Inputs for calibration, and for options that run the result; see `dovetail.input_data`.
        plan: A plan to replay, or its path. Its backends are used if `backends` is empty.
        try_engines: Load the result on the backends' engines, and place rejected nodes elsewhere: always (True), never
            (False), or unless the model is large or a plan is replayed (None).
        keep: Called with the result before any option examines it, and in any case before it is returned. A result
            saved here survives a failure of a later option.
        options: Keyword arguments that installed plugins add. `dovetail-verify` adds `verify`, `input_shapes` and the
            accuracy goals; see `dovetail_verify.option`.
        backends, strategy, solver, costs, pins, edits, low, high, keep_io_types, freeze_inputs, passes, plugins,
            progress, instrumentation: See `plan`.

    Raises:
        UsageError: No installed plugin adds a keyword that is given.
        ResultError: The result is complete, but an option found something wrong with it; the error holds the result.
        DovetailError: The model or the request is at fault.
    """
    choices = _choices(locals())
    how: dict[str, Any] = {
        "passes": passes, "try_engines": try_engines, "keep": keep, "progress": progress,
        "instrumentation": instrumentation,
    }  # fmt: skip
    plugins = plugins or load_plugins()
    if isinstance(model, (str, Path)) and Path(model).is_dir():
        asked = {"backends": backends, "plan": plan, **choices}
        whole = compiled_folder(Path(model), plugins, **asked, **how, **options)
        if whole is not None:
            return cast("CompiledModel", whole)  # not typed as a union, which would burden every other caller
    chosen = OptionPhases(plugins.registry, options)
    planned, backends = _replayed(plan, named_backends(backends, plugins), plugins)
    request = _request(backends, plan=planned, **choices)
    original = chosen.source(open(model, plugins), request)
    request = _checked(chosen.requested(request, original))
    return Compilation(original, request, chosen, plugins=plugins, **how).run()


def load(folder: str | Path, plugins: PluginSet | None = None) -> CompiledModel:
    """Load a result that `CompiledModel.save` wrote.

    The files must belong together: a result whose model was replaced or edited is rejected. A plan or remarks that were
    edited or removed are ignored, with a remark. A model file alone, or a folder without `result.json`, is loaded
    without these checks.

    Raises:
        DovetailError: The folder holds no compiled model, its model was altered, or a backend is not installed.
    """
    from dovetail.plugin.compiled import CompiledModel
    from dovetail.plugin.loading.stores import loaded

    plugins = plugins or load_plugins()
    return loaded(folder, "load", CompiledModel, plugins.registry, plugins)


def save(
    what: Model | Plan | CompiledModel,
    path: str | Path,
    *,
    external: bool | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a model, a plan or a result; the methods `save` of all three are the same.

    Args:
        what: A model, which the front end for the suffix of `path` writes; a plan, written as YAML, or as JSON if the
            name ends in `.json`; or a result, written to a folder.
        path: The path to write to.
        external: Store weights outside the file (True), inside it (False), or depending on size (None); not for plans.
        progress: Called with ("save", weights written, weights in total).

    Raises:
        DovetailError: It cannot be written, or nothing that is installed writes such files.
    """
    from dovetail.ir.model import Model
    from dovetail.planning.plan import Plan
    from dovetail.plugin.loading.frontends import write_file
    from dovetail.plugin.loading.stores import store_for

    if isinstance(what, Model):
        write_file(what, Path(path), external=external, progress=progress)
    elif isinstance(what, Plan):
        with store_for(path, "save_plan", what.registry) as store:
            store.save_plan(what, Path(path))
    else:
        what.save(path, external=external, progress=progress)


def load_plan(path: str | Path, plugins: PluginSet | None = None) -> Plan:
    """Read a plan, or the plan of a saved result.

    Args:
        path: A file that `save` wrote, or the folder of a saved result.
        plugins: The plugins with the stores; all installed ones by default.

    Raises:
        DovetailError: The path holds no plan, or a malformed one.
    """
    from dovetail.planning.plan import Plan
    from dovetail.plugin.loading.stores import loaded

    return loaded(path, "load_plan", Plan, plugins.registry if plugins is not None else None)


def plan_text(plan: Plan) -> str:
    """Return a plan as text, as in its file; `str(plan)` is the same."""
    from dovetail.plugin.loading.stores import store_for

    with store_for("plan", "plan_text", plan.registry) as store:
        text: str = store.plan_text(plan)
    return text


def named_backends(
    backends: str | BackendChoice | Sequence[str | BackendChoice], plugins: PluginSet
) -> list[str | BackendChoice]:
    """Register the backend files among `backends`, and return all backends by name; see `use_file`."""
    given = (backends,) if isinstance(backends, (str, BackendChoice)) else backends
    return [use_file(plugins.registry, one) if isinstance(one, str) else one for one in given]


def requested(backends: str | BackendChoice | Sequence[str | BackendChoice], **choices: Any) -> Request:
    """Build a request from keyword arguments like those of `plan`.

    Raises:
        UsageError: No backend and no plan to replay is given.
    """
    return _checked(_request(backends, **choices))


def _choices(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a function's arguments that are choices of a request: each has the name of its field."""
    names = Request.__dataclass_fields__.keys() - {"backends", "plan", "options"}
    return {name: value for name, value in arguments.items() if name in names}


def _request(backends: str | BackendChoice | Sequence[str | BackendChoice], **choices: Any) -> Request:
    if isinstance(backends, (str, BackendChoice)):
        backends = (backends,)
    data = choices.pop("data", None)
    return Request.of(*backends, **choices, data=None if data is None else input_data(data).given)


def _checked(request: Request) -> Request:
    if not request.backends and request.plan is None:
        raise UsageError("no backend is named", "add --backend NAME (repeatable); `dovetail backends` lists them")
    return request


def _replayed(plan: Plan | str | Path | None, backends: Any, plugins: PluginSet) -> tuple[Plan | None, Any]:
    """Return the plan to replay, or None, and the backends of the request; by default those of the plan."""
    from dovetail.plugin.loading.backends import check_installed

    planned = load_plan(plan, plugins) if isinstance(plan, (str, Path)) else plan
    if planned is not None and not backends:
        check_installed(plugins.registry, planned.backends)
        backends = [one.choice for one in planned.backends]
    return planned, backends
