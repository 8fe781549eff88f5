"""The `load` pass: load the result on the preferred engines of its backends."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.passes import Pass
from dovetail.planning import HOST, Remark, decided_key, get_placement
from dovetail.plugin.loading import TOOL_PROGRESS, nodes_of, own_output
from dovetail.text import abbreviated, pluralize

from dovetail_runtime.engine_refusals import located_refusals, refuse_nodes
from dovetail_runtime.engines import TARGET_ONLY, Engines, engines_in
from dovetail_runtime.serialize import weight_bytes
from dovetail_runtime.target_operators import check_runs_here

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Region

    from dovetail_runtime.engines import GuardedEngine
    from dovetail_runtime.executor import RegionExecutor
    from dovetail_runtime.region_runner import RegionRefusal


_TRIES = 8
_LARGEST_TRIED = 1 << 30  # bytes of weights; engines need as much again
_MOST_TRIED = 20_000  # nodes; an engine's preparation time may be superlinear


class LoadTrial(NamedTuple):
    """State of the engines after a compilation, for the `CompiledModel`.

    Attributes:
        engines: The engines of every backend.
        executor: The executor that loaded the result; None if it was not loaded.
        untried: Why the result was not loaded although loading was not disabled; else empty.
    """

    engines: Engines
    executor: RegionExecutor | None = None
    untried: str = ""


class Load(Pass):
    """Load every region on the first engine of its backend, and refuse the nodes that the engine rejects.

    Given:  a model with regions, and a backend whose engine does not load its node y = Softmax(x)
    Result: a refusal of that node for the backend, so that it is placed elsewhere
    """

    name = "load"
    stage = "load"

    def run(self, model: Model, ctx: Context) -> bool:
        """Load the model unless it is large or the request disables that; the graph does not change."""
        engines, preferred = engines_in(ctx), tried_engines(ctx)
        ctx.outcome.trial = LoadTrial(engines)
        if ctx.try_engines is not False and TARGET_ONLY not in ctx.request.options:
            check_runs_here(ctx.outcome.with_nodes or model, engines, preferred)
        placed = (placement.backend for node in model.graph if (placement := get_placement(node)))
        if not preferred or not any(backend in preferred for backend in placed):
            return False
        if ctx.try_engines is None and (why := too_large(model)):
            ctx.outcome.trial = LoadTrial(engines, untried=why)
            return False
        ctx.refusals.tries += 1
        if ctx.refusals.tries >= _TRIES:
            return False
        from dovetail_runtime.executor import RegionExecutor
        from dovetail_runtime.region_runner import NoEngine

        # Engines name one node at a time; in the last round the rest of the region is refused as a whole.
        whole = ctx.refusals.tries == _TRIES - 1
        try:
            with _progress_of_tools(ctx):
                executor = RegionExecutor(model, engines, artifacts=ctx.outcome.artifacts)
        except DovetailError as error:
            # No engine accepts some region. If its preferred engine refused it, the host may take it.
            refused = error.refusals if isinstance(error, NoEngine) else []
            _refuse(model, refused, engines, preferred, ctx, whole)
            if not ctx.refusals.fresh:
                raise
        else:
            refused = executor.refusals
            _refuse(model, refused, engines, preferred, ctx, whole)
            ctx.outcome.trial = LoadTrial(engines, executor)
            for runner in executor.runners if not ctx.refusals.fresh else ():
                if facts := runner.facts:
                    text = f"{runner.engine} reports of region {runner.index}: {facts_text(facts)}"
                    ctx.remark("analysis", _planned(model, runner.region), "engine-facts", text, facts=facts)
        return False


def _refuse(
    model: Model,
    refused: Sequence[RegionRefusal],
    engines: Engines,
    preferred: Mapping[str, str],
    ctx: Context,
    whole: bool,
) -> None:
    """Refuse the nodes that engines reject, with an account of the search for them."""
    account: list[Remark] = []
    located = located_refusals(model, refused, engines, preferred, account)
    refuse_nodes(located, preferred, ctx, whole, account)


@contextmanager
def _progress_of_tools(ctx: Context) -> Iterator[None]:
    """Show the lines of progress of a tool that an engine loads with as the progress of the compilation."""

    def show(line: str) -> None:
        if ctx.progress is not None:
            with own_output():
                ctx.progress(f"load: {abbreviated(line)}", 0, 0)

    token = TOOL_PROGRESS.set(show)
    try:
        yield
    finally:
        TOOL_PROGRESS.reset(token)


def _planned(model: Model, region: Region) -> ir.Node:
    """Return the first node of a region that the plan has, which a conversion or a compiled program may stand for."""
    inside = (node for outer in region.nodes for node in nodes_of(model, outer))
    return next((node for node in inside if decided_key(node)), region.nodes[0])


def facts_text(facts: Mapping[str, object]) -> str:
    """Return facts of an engine in one line: `cycles 1200, memory 4096`."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def tried_engines(ctx: Context) -> Mapping[str, str]:
    """Return the engines to try, by backend: the first that is available here, before any of the host's.

    Those of the host stand in for a device, and are not asked what it refuses, unless the backend prefers them.

    Raises:
        DovetailError: A backend has no engines.
    """
    engines = engines_in(ctx)
    # A replayed plan was tried when it was created.
    if ctx.try_engines is False or ctx.try_engines is None and ctx.request.plan is not None:
        return {}
    of_host = {engine.name for engine in engines.get(HOST, ())}
    found = {name: _preferred(listed, of_host) for name, listed in engines.items() if name != HOST}
    return {name: engine.name for name, engine in found.items() if engine is not None}


def _preferred(listed: Sequence[GuardedEngine], of_host: Collection[str]) -> GuardedEngine | None:
    for index, engine in enumerate(listed):
        if index and engine.name in of_host:
            return None
        if not engine.stands_in and engine.available().ok:
            return engine
    return None


def too_large(model: Model) -> str:
    """Return why a model is too large to load only for a trial; empty if it is not."""
    nodes = sum(1 for _ in model.nodes())
    if nodes > _MOST_TRIED:
        return f"it has {pluralize(nodes, 'node')}"
    size = weight_bytes(model)
    return f"its weights are {size >> 20} MiB" if size > _LARGEST_TRIED else ""
