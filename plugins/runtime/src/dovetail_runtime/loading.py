"""The `load` pass: load the result on the engines that its backends are made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import Pass
from dovetail.planning import HOST, get_placement
from dovetail.text import pluralize

from dovetail_runtime.engine_refusals import further_refusals, refuse_nodes
from dovetail_runtime.engines import Engines, engines_in

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_runtime.executor import Executor


_TRIES = 8
_LARGEST_TRIED = 1 << 30  # bytes of weights; engines need as much again
_MOST_TRIED = 20_000  # nodes; the time that engines take to prepare need not be linear


@dataclass(frozen=True)
class Trial:
    """What is known of the engines when a model was compiled, for the `CompiledModel`.

    Attributes:
        engines: The engines of every backend.
        executor: The executor that loaded the result; None if it was not loaded.
        untried: Why the result was not loaded although nobody said so; else empty.
    """

    engines: Engines
    executor: Executor | None = None
    untried: str = ""


@dataclass(frozen=True)
class Load(Pass):
    """Load every region on the first engine of its backend, and refuse the nodes that the engine refuses.

    Given:  a model with regions, and a backend whose engine does not load its node y = Softmax(x)
    Result: the backend is refused that node, so that it is placed elsewhere
    """

    name = "load"
    stage = "load"

    def run(self, model: Model, ctx: Context) -> bool:
        """Load the model unless it is large, or the request says otherwise; the graph stays as it is."""
        engines, preferred = engines_in(ctx), tried_engines(ctx)
        ctx.outcome.trial = Trial(engines)
        placed = (placement.backend for node in model.graph if (placement := get_placement(node)))
        if not preferred or not any(backend in preferred for backend in placed):
            return False
        if ctx.try_engines is None and (why := too_large(model)):
            ctx.outcome.trial = Trial(engines, untried=why)
            return False
        ctx.refusals.tries += 1
        if ctx.refusals.tries >= _TRIES:
            return False
        from dovetail_runtime.executor import Executor
        from dovetail_runtime.region_runner import NoEngine

        # Engines name one node at a time; where there is no end to it, what is left of the region goes as a whole.
        whole = ctx.refusals.tries == _TRIES - 1
        try:
            executor = Executor(model, engines, artifacts=ctx.outcome.artifacts)
        except DovetailError as error:
            # No engine at all takes some region. Where the one that the backend is made for refused it, the host may.
            refused = error.refusals if isinstance(error, NoEngine) else []
            refuse_nodes([*refused, *further_refusals(model, refused, engines)], preferred, ctx, whole)
            if not ctx.refusals.fresh:
                raise
        else:
            refused = executor.refusals
            refuse_nodes([*refused, *further_refusals(model, refused, engines)], preferred, ctx, whole)
            ctx.outcome.trial = Trial(engines, executor)
        return False


def tried_engines(ctx: Context) -> Mapping[str, str]:
    """The engines that regions are tried on, by backend: the one that each is made for, where it runs here.

    Raises:
        DovetailError: A backend has no engine at all.
    """
    engines = engines_in(ctx)
    # A replayed plan was tried when it was made.
    if ctx.try_engines is False or ctx.try_engines is None and ctx.request.plan is not None:
        return {}
    return {name: listed[0].name for name, listed in engines.items() if name != HOST and listed[0].available().ok}


def too_large(model: Model) -> str:
    """Why a model is not loaded just to look at it; empty if it may be."""
    nodes = sum(1 for _ in model.nodes())
    if nodes > _MOST_TRIED:
        return f"it has {pluralize(nodes, 'node')}"
    tensors = (value.const_value for _, graph in model.graphs() for value in graph.initializers.values())
    size = sum(tensor.nbytes for tensor in tensors if tensor is not None and tensor.dtype.name != "STRING")
    return f"its weights are {size >> 20} MiB" if size > _LARGEST_TRIED else ""
