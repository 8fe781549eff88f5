"""A request carried out: recognised or compiled, with the installed options around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.compilation import Planner
from dovetail.errors import ResultError
from dovetail.passes.context import Context
from dovetail.passes.instrumentation import Instrumentation
from dovetail.planning.remark import Remark
from dovetail.plugin.options import CompileJob
from dovetail.plugin.output import own_output
from dovetail.running import input_data, runner_class
from dovetail.stores import recognised

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.option_chain import OptionChain
    from dovetail.passes import Pass, Request
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.options import Asked


_UNVERIFIED = Remark(
    "analysis", "", "compile", "not-verified",
    "the result was not verified: no installed distribution compares it with the original (dovetail-verify does)",
    advice="pip install dovetail-verify",
)  # fmt: skip


def compile_job(
    original: Model,
    request: Request,
    options: OptionChain,
    *,
    plugins: PluginSet,
    passes: Sequence[Pass] = (),
    try_engines: bool | None = None,
    keep: Callable[[CompiledModel], None] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    instrumentation: Instrumentation | None = None,
) -> CompiledModel:
    """The result of a request for a model, by way of the options; see `dovetail.compile` for the arguments."""
    ctx = Context(request, plugins=plugins)
    ctx.load_backends()
    ctx.try_engines = try_engines
    once = _Once(keep)
    runner = runner_class(ctx.registry)
    tried = runner.tried(ctx) if runner is not None else {}
    printing = progress and own_output()(progress)
    job = CompileJob(original, request, ctx, options.keywords, None, printing, own_output()(once), passes, tried)
    found, mark = recognised(job)
    job = replace(job, recognised=found)
    if found is None and request.data is not None:
        input_data(request.data).check(original)
    watch = instrumentation or Instrumentation(progress=printing)
    latest, given = (request, Planner(original, ctx, passes, watch)), request

    def innermost(asked: Asked | None = None, request: Request | None = None) -> CompiledModel:
        nonlocal latest
        wanted = request or given
        if found is not None and not asked and wanted is given:
            return found
        if wanted is not latest[0]:
            other = Context(wanted, plugins=plugins)
            other.load_backends()
            other.try_engines = try_engines
            if wanted.data is given.data:
                other.measured = ctx.measured
            latest = wanted, Planner(original, other, passes, watch)
        compiled = latest[1].compile(asked)
        compiled.source = original.path and original.path.absolute()
        mark(compiled)
        if wanted.options:
            compiled.plan.summary["options"] = {name: dict(values) for name, values in wanted.options.items()}
        if given.data is not None and not options.owns("verify"):
            compiled.plan.remarks.append(_UNVERIFIED)
        return compiled

    try:
        compiled = options.around(job, innermost)()
    except ResultError as error:
        once(error.compiled)
        raise
    once(compiled)
    return compiled


class _Once:
    """Calls a function with a result unless that was the last one it was called with."""

    def __init__(self, function: Callable[[CompiledModel], None] | None):
        self._function = function
        self._last: CompiledModel | None = None

    def __call__(self, compiled: CompiledModel) -> None:
        if self._function is not None and compiled is not self._last:
            self._last = compiled
            self._function(compiled)
