"""Composition of installed passes into a pipeline, ordered by stage and by their constraints."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, UsageError
from dovetail.passes.pipeline import Pipeline
from dovetail.planning.placement import HOST
from dovetail.planning.request import Request
from dovetail.plugin.pass_ import STAGES, Pass, load_pass
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from dovetail.plugin.loading.loader import PluginSet
    from dovetail.plugin.loading.registry import Registry


def compose(
    registry: Registry,
    stages: Iterable[str] = STAGES,
    request: Request | None = None,
    plugins: PluginSet | None = None,
    passes: Iterable[Pass] = (),
) -> Pipeline:
    """Return the pipeline of all registered passes in the given stages.

    Args:
        registry: The registered passes.
        stages: The stages to include, in any order; requirements in other stages count as met.
        request: The user's request, which plugins receive when they configure the pipeline; passes for backends that
            it does not choose are left out.
        plugins: The plugins whose `configure_pipeline` hooks run last.
        passes: The caller's own passes, ordered by their constraints; one replaces a registered pass of the same name.

    Raises:
        DovetailError: A pass that the request's backends need fails to load, one requires a missing pass, or the
            constraints form a cycle.
    """
    wanted = set(stages)
    for stage in sorted(wanted.difference(STAGES)):
        raise DovetailError(f"unknown stage {stage!r}{did_you_mean(stage, STAGES)}", f"stages: {', '.join(STAGES)}")
    ours = request and {"", *(choice.name for choice in request.backends)}
    names = [entry.name for entry in registry.pass_.entries if not ours or entry.for_backend in ours]
    loaded = registry.pass_.usable(lambda name: load_pass(registry, name), _needed(request, registry), names)
    own = _own(passes)
    staged = {name: pass_ for name, pass_ in loaded.items() if pass_.stage is not None}
    staged |= {name: type(pass_) for name, pass_ in own.items()}
    predecessors = _predecessors(staged, registry)
    steps: list[str] = []
    for stage in (stage for stage in STAGES if stage in wanted):
        here = {key for key, kind in staged.items() if kind.stage == stage and (not ours or kind.for_backend in ours)}
        steps += _sorted(here, predecessors, registry)
    pipeline = Pipeline(own.get(name) or _make(staged[name], registry) for name in steps)
    if plugins is not None:
        plugins.configure(pipeline, request or Request())
    return pipeline


def _needed(request: Request | None, registry: Registry) -> list[str] | None:
    """Return the distributions of a request's backends; None without a request."""
    if request is None:
        return None
    names = [choice.name for choice in request.backends]
    return [registry.backend.entry(name).owner for name in (HOST, *names) if name in registry.backend]


def _own(passes: Iterable[Pass]) -> dict[str, Pass]:
    """Return the caller's own passes by name.

    Raises:
        UsageError: One is not a pass, or has no stage.
    """
    found = {}
    for pass_ in passes:
        if isinstance(pass_, type) and issubclass(pass_, Pass):
            pass_ = pass_()
        if not isinstance(pass_, Pass):
            raise UsageError(f"{pass_!r} is not a pass", "derive its class from dovetail.Pass")
        if pass_.stage not in STAGES:
            hint = f"set `stage` in its class to one of {', '.join(STAGES)}"
            raise UsageError(f"pass {pass_.name!r} has no stage to run in", hint)
        found[pass_.name] = pass_
    return found


def _owner(name: str, registry: Registry) -> str:
    return registry.pass_.entry(name).owner if name in registry.pass_ else "this program"


def _make(cls: type[Pass], registry: Registry) -> Pass:
    try:
        return cls()
    except TypeError as error:
        owner = _owner(cls.name, registry)
        raise DovetailError(
            f"pass {cls.name!r} of {owner} belongs to stage {cls.stage!r} and cannot be made without options: {error}"
        ) from error


def _predecessors(staged: dict[str, type[Pass]], registry: Registry) -> dict[str, set[str]]:
    """Return the predecessors of each pass, and check that they agree with the order of stages."""
    before: dict[str, set[str]] = {name: set() for name in staged}
    for name, pass_ in staged.items():
        owner = _owner(name, registry)
        constraints = (pass_.requires, pass_.after, pass_.before)
        requires, after, others = map(list, constraints)
        for needed in requires:
            if needed in registry.pass_ and registry.pass_.entry(needed).for_backend:
                continue  # where its backend is not chosen, it has nothing to do
            if needed not in staged:
                known = "belongs to no stage" if needed in registry.pass_ else "is not installed"
                raise DovetailError(
                    f"pass {name!r} of {owner} requires pass {needed!r}, which {known}{did_you_mean(needed, staged)}",
                    "install the plugin that brings it, or leave this one out with --no-plugin",
                )
        pairs = [(other, name) for other in (*requires, *after) if other in staged]
        pairs += [(name, other) for other in others if other in staged]
        for first, second in pairs:
            if STAGES.index(staged[first].stage) > STAGES.index(staged[second].stage):
                raise DovetailError(
                    f"pass {name!r} of {owner} wants {first!r} before {second!r}, but stage {staged[first].stage!r} "
                    f"comes after stage {staged[second].stage!r}"
                )
            before[second].add(first)
    return before


def _sorted(names: set[str], predecessors: dict[str, set[str]], registry: Registry) -> list[str]:
    """Sort topologically; break ties by name."""
    sorter = TopologicalSorter({name: sorted(predecessors[name] & names) for name in sorted(names)})
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = [f"{name!r} of {_owner(name, registry)}" for name in error.args[1]]
        raise DovetailError(f"passes want to run before each other: {' before '.join(cycle)}") from None
    ready: list[str] = []
    found = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, name)
        found.append(heapq.heappop(ready))
        sorter.done(found[-1])
    return found
