"""A request carried out: recognised or compiled, with the installed options around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.compilation import Planner, preferred_engines
from dovetail.errors import ResultError
from dovetail.passes.context import Context
from dovetail.passes.instrumentation import Instrumentation
from dovetail.planning.remark import Remark
from dovetail.plugin.options import CompileJob
from dovetail.runtime.engines import engines_of
from dovetail.stores import recognised

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.option_chain import OptionChain
    from dovetail.passes import Pass, Request
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.options import Asked

__all__ = ["check_data", "compile_job"]

_UNVERIFIED = Remark(
    "analysis", "", "compile", "not-verified",
    "the result was not verified: no installed distribution compares it with the original (dovetail-verify does)",
    suggest="pip install dovetail-verify",
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
    engines = engines_of((*ctx.backends, ctx.host), ctx.registry)
    once = _Once(keep)
    tried = preferred_engines(engines, try_engines)
    job = CompileJob(original, request, ctx, engines, options.keywords, None, progress, once, passes, tried)
    found, mark = recognised(job)
    job = replace(job, recognised=found)
    if found is None:
        check_data(original, request.data)
    watch = instrumentation or Instrumentation(progress=progress)
    planner = Planner(original, ctx, passes, watch)

    def innermost(asked: Asked | None = None) -> CompiledModel:
        if found is not None and not asked:
            return found
        compiled = planner.compile(engines, asked, try_engines)
        compiled.registry = ctx.registry
        compiled.source = original.path and original.path.absolute()
        mark(compiled)
        if request.options:
            compiled.plan.summary["options"] = {name: dict(values) for name, values in request.options.items()}
        if request.data is not None and not options.owns("verify"):
            compiled.plan.remarks.append(_UNVERIFIED)
        return compiled

    try:
        compiled = options.around(job, innermost)()
    except ResultError as error:
        once(error.compiled)
        raise
    once(compiled)
    return compiled


def check_data(model: Model, data: object) -> None:
    """Look at the first batch, so that data which does not fit is an error before any work is done."""
    from dovetail.data.batches import batches

    if data is not None:
        next(batches(model, data), None)


class _Once:
    """Calls a function with a result unless that was the last one it was called with."""

    def __init__(self, function: Callable[[CompiledModel], None] | None):
        self._function = function
        self._last: CompiledModel | None = None

    def __call__(self, compiled: CompiledModel) -> None:
        if self._function is not None and compiled is not self._last:
            self._last = compiled
            self._function(compiled)
