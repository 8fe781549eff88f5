"""One compilation with its options: find an existing result, or compile once or several times; keep the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.compiler.driver import Driver
from dovetail.compiler.search import Search
from dovetail.errors import ResultError
from dovetail.passes.instrumentation import Instrumentation
from dovetail.planning.remark import Remark
from dovetail.planning.request import Request
from dovetail.plugin.compiled import CompiledModel
from dovetail.plugin.context import Context
from dovetail.plugin.loading.output import own_output
from dovetail.plugin.loading.stores import recognized
from dovetail.plugin.options import CompileJob, blaming, returned
from dovetail.plugin.running import input_data, runner_class

if TYPE_CHECKING:
    from dovetail.compiler.option_phases import OptionPhases
    from dovetail.ir.model import Model
    from dovetail.passes import Pass
    from dovetail.plugin.loading.loader import PluginSet
    from dovetail.plugin.search import Asked

_UNVERIFIED = Remark(
    "analysis", "", "compile", "not-verified", "the result was not verified: no installed distribution compares it",
    advice="pip install dovetail-verify",
)  # fmt: skip


@contextmanager
def _noted(problems: list[ResultError]) -> Iterator[None]:
    """Add what is wrong with a complete result to a list, so that later phases still see the result."""
    try:
        yield
    except ResultError as error:
        problems.append(error)


class Compilation:
    """Compiles a model for a request, with the options of plugins around it.

    Args:
        original: The source model.
        request: The request.
        options: The options of plugins, with the keywords that were given.
        plugins: The plugins.
        passes: The caller's own passes.
        try_engines: See `dovetail.compile`.
        keep: See `dovetail.compile`.
        progress: Progress callback.
        instrumentation: What to print and verify between passes.
    """

    def __init__(
        self, original: Model, request: Request, options: OptionPhases, *, plugins: PluginSet,
        passes: Sequence[Pass] = (), try_engines: bool | None = None, instrumentation: Instrumentation | None = None,
        keep: Callable[[CompiledModel], None] | None = None, progress: Callable[[str, int, int], None] | None = None,
    ):  # fmt: skip
        self._original, self._request, self._options, self._plugins = original, request, options, plugins
        self._passes, self._try_engines, self._keep = passes, try_engines, keep
        self._progress = progress and own_output()(progress)
        self._watch = instrumentation or Instrumentation(progress=self._progress)
        self._ctx = self._context(request)
        self._kept: CompiledModel | None = None
        self._driven: Request | None = None

    def run(self) -> CompiledModel:
        """Return the result: the model itself if it already is a result of this request, else a new one.

        Raises:
            ResultError: An option found something wrong with the complete result.
            DovetailError: The model or the request is at fault.
        """
        request, ctx, runner = self._request, self._ctx, runner_class(self._ctx.registry)
        job = CompileJob(
            self._original, request, ctx, self._options.keywords, None, self._progress,
            own_output()(self._keep_once), self._passes, runner.tried(ctx) if runner is not None else {},
        )  # fmt: skip
        (recognized_as, self._mark), self._on_prepared = recognized(job), job.on_prepared
        job = replace(job, recognized=recognized_as)
        if recognized_as is None and request.data is not None:
            input_data(request.data).check(self._original)
        search = Search(self._options, self._compile)
        job = replace(job, searched=search.compares(job))
        with ExitStack() as scopes:
            for found in self._options.acting("begin"):
                with blaming(found):
                    scope = found.option.begin(job)
                    if scope is not None:
                        scopes.enter_context(returned(found, scope, AbstractContextManager, "scope"))
            self._try_engines = ctx.try_engines
            problems: list[ResultError] = []
            compiled = recognized_as if recognized_as is not None else self._searched(job, search, problems)
            for found in self._options.acting("judge"):
                with blaming(found), _noted(problems):
                    found.option.judge(job, compiled)
            for found in self._options.acting("publish"):
                with blaming(found), _noted(problems):
                    found.option.publish(job, compiled)
        self._keep_once(compiled)
        if problems:
            raise problems[0]
        return compiled

    def _searched(self, job: CompileJob, search: Search, problems: list[ResultError]) -> CompiledModel:
        """Return the finished result of a search; what is wrong with it is added to a list."""
        job, compiled = search.run(job)
        problems += search.problems
        for found in self._options.acting("finish"):
            with blaming(found):
                found.option.finish(job, compiled)
        return compiled

    def _compile(self, asked: Asked, wanted: Request) -> CompiledModel:
        """Compile a request with overrides of nodes."""
        if wanted is not self._driven:
            ctx = self._ctx if wanted is self._request else self._context(wanted)
            if wanted.data is self._ctx.measured.data:
                ctx.measured = self._ctx.measured
            self._driver = Driver(self._original, ctx, self._passes, self._watch, self._on_prepared)
            self._driven, self._on_prepared = wanted, []
        compiled = self._driver.compile(asked)
        compiled.source = self._original.path and self._original.path.absolute()
        self._mark(compiled)
        if wanted.options:
            compiled.plan.summary["options"] = {name: dict(values) for name, values in wanted.options.items()}
        if self._request.data is not None and not self._options.owns("verify"):
            compiled.plan.remarks.append(_UNVERIFIED)
        return compiled

    def _context(self, request: Request) -> Context:
        ctx = Context(request, plugins=self._plugins)
        ctx.load_backends()
        ctx.try_engines, ctx.measured.data = self._try_engines, request.data
        return ctx

    def _keep_once(self, compiled: CompiledModel) -> None:
        if self._keep is not None and compiled is not self._kept:
            self._kept = compiled
            self._keep(compiled)
