"""Compose the passes of the installed plugins into a pipeline, ordered by stage and by their constraints."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, UsageError
from dovetail.passes.base import STAGES, Pass, load_pass
from dovetail.passes.pipeline import Pipeline
from dovetail.passes.request import Request
from dovetail.suggestions import did_you_mean

if TYPE_CHECKING:
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.registry import Registry

__all__ = ["compose"]


def compose(
    registry: Registry,
    stages: Iterable[str] = STAGES,
    request: Request | None = None,
    plugins: PluginSet | None = None,
    passes: Iterable[Pass] = (),
) -> Pipeline:
    """Return the pipeline of all registered passes that belong to one of the stages.

    Args:
        registry: The registered passes.
        stages: The stages to include, in any order; requirements in other stages count as met.
        request: The request of the user; plugins get it when they configure the pipeline.
        plugins: The plugins whose `configure` hooks run last.
        passes: Passes of the caller, ordered by their constraints; one replaces a registered pass of the same name.

    Raises:
        DovetailError: A pass fails to load, requires a missing one, or the constraints form a cycle.
    """
    wanted = set(stages)
    for stage in sorted(wanted.difference(STAGES)):
        raise DovetailError(f"unknown stage {stage!r}{did_you_mean(stage, STAGES)}", f"stages: {', '.join(STAGES)}")
    staged = {}
    for name in registry.pass_:
        pass_ = load_pass(registry, name)
        if pass_.stage is not None:
            staged[name] = pass_
    own = _own(passes)
    staged |= {name: type(pass_) for name, pass_ in own.items()}
    predecessors = _predecessors(staged, registry)
    steps = []
    for stage in STAGES:
        if stage in wanted:
            names = {name for name, pass_ in staged.items() if pass_.stage == stage}
            steps.extend(_sorted(names, predecessors, registry))
    pipeline = Pipeline(own.get(name) or _make(staged[name], registry) for name in steps)
    if plugins is not None:
        plugins.configure(pipeline, request or Request())
    return pipeline


def _own(passes: Iterable[Pass]) -> dict[str, Pass]:
    """Return the passes of the caller by name.

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
    """Return the predecessors of each pass, checked against the order of stages."""
    before: dict[str, set[str]] = {name: set() for name in staged}
    for name, pass_ in staged.items():
        owner = _owner(name, registry)
        for needed in pass_.requires:
            if needed not in staged:
                known = "belongs to no stage" if needed in registry.pass_ else "is not installed"
                raise DovetailError(
                    f"pass {name!r} of {owner} requires pass {needed!r}, which {known}{did_you_mean(needed, staged)}",
                    "install the plugin that brings it, or leave this one out with --no-plugin",
                )
        pairs = [(other, name) for other in (*pass_.requires, *pass_.after) if other in staged]
        pairs += [(name, other) for other in pass_.before if other in staged]
        for first, second in pairs:
            if STAGES.index(staged[first].stage) > STAGES.index(staged[second].stage):
                raise DovetailError(
                    f"pass {name!r} of {owner} wants {first!r} before {second!r}, but stage {staged[first].stage!r} "
                    f"comes after stage {staged[second].stage!r}"
                )
            before[second].add(first)
    return before


def _sorted(names: set[str], predecessors: dict[str, set[str]], registry: Registry) -> list[str]:
    """Sort topologically; ties are broken by name."""
    waiting = {name: predecessors[name] & names for name in names}
    ready = [name for name in names if not waiting[name]]
    heapq.heapify(ready)
    found = []
    while ready:
        name = heapq.heappop(ready)
        found.append(name)
        for other in names:
            if name in waiting[other]:
                waiting[other].discard(name)
                if not waiting[other]:
                    heapq.heappush(ready, other)
    if len(found) < len(names):
        raise DovetailError(_cycle({name: rest for name, rest in waiting.items() if rest}, registry))
    return found


def _cycle(waiting: dict[str, set[str]], registry: Registry) -> str:
    trail = [min(waiting)]
    while trail[-1] not in trail[:-1]:
        trail.append(min(waiting[trail[-1]]))
    cycle = trail[trail.index(trail[-1]) :][::-1]
    steps = [f"{name!r} of {_owner(name, registry)}" for name in cycle]
    return f"passes want to run before each other: {' before '.join(steps)}"
