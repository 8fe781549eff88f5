"""What a result was compiled from: its request, its original as that prepares it, and the nodes in its programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.compiler import Driver
from dovetail.errors import DovetailError
from dovetail.passes import Context, Instrumentation
from dovetail.plugin.loading import check_installed, searching
from dovetail_runtime.engines import engines_of
from dovetail_runtime.nested_graphs import with_nodes

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Pass, Progress, Request
    from dovetail.planning import Plan
    from dovetail.plugin import CompiledModel, PluginSet
    from dovetail_runtime.engines import GuardedEngine


def exact_model(
    original: Model,
    result: CompiledModel,
    ctx: Context,
    passes: Sequence[Pass] = (),
    progress: Progress | None = None,
) -> tuple[Model, Mapping[str, Sequence[GuardedEngine]]]:
    """Prepare an original as for its result, so that its nodes have the plan's names; return the host's engines, too.

    Args:
        original: The model that was compiled.
        result: The result, of which the nodes in the place of its programs become known.
        ctx: A context of its request; it receives the remarks of the preparation passes.
        passes: Passes in addition to those of plugins.
        progress: Called with (what, done, total).

    Raises:
        DovetailError: The model cannot be prepared.
    """
    ctx.load_backends()
    exact = Driver(original, ctx, passes, Instrumentation(progress=progress)).prepare()
    fill_in_nodes(original, result, ctx, passes)
    return exact, engines_of([ctx.host], ctx.registry)


def fill_in_nodes(original: Model, result: CompiledModel, ctx: Context, passes: Sequence[Pass]) -> None:
    """Make the nodes in the place of programs known for a result from a folder, whose artifacts have the weights."""
    if with_nodes(result).ir.functions:
        result.with_nodes = with_nodes(_replayed(original, result, ctx, passes))


def _replayed(original: Model, result: CompiledModel, ctx: Context, passes: Sequence[Pass]) -> CompiledModel:
    """Compile by the plan of a result once more, for the nodes in the place of its programs."""
    again = Context(replace(ctx.request, plan=result.plan, data=None), plugins=ctx.plugins)
    again.try_engines = again.files_wanted = False
    with searching():
        return Driver(original, again, passes).compile()


def request_of_result(plan: Plan, plugins: PluginSet) -> Request:
    """Return the request of a plan; for a replayed plan, only the backends are known."""
    request = replace(plan.asked(), data=None)
    with suppress(DovetailError):
        check_installed(plugins.registry, plan.backends)  # registers those that were files
    for choice in request.backends:
        if choice.name not in plugins.registry.backend:
            raise DovetailError(
                f"the result was compiled for the backend '{choice.name}', which is not installed",
                "install the distribution that brings it",
            )
    return request
