"""Remedies: what might bring a node to a backend, tried on the plan before anybody is told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dovetail.counting import counted
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.request import Request
    from dovetail.planning.plan import Plan
    from dovetail.plugin.loader import PluginSet

__all__ = ["Remedy", "Tried", "try_remedies"]

_MOST_TRIED = 12


class Remedy(NamedTuple):
    """A change of a request that might bring a node to a backend.

    Attributes:
        text: What to do, as a command line has it: `--backend acme-npu:revision=3`.
        pins: Pins to add.
        edits: Edits to add.
        options: Options of the backend to change.
    """

    text: str
    pins: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    options: Mapping[str, str] = MappingProxyType({})

    def applied(self, request: Request, backend: str) -> Request:
        """The request with this change."""
        choices = tuple(
            replace(choice, options={**choice.options, **self.options}) if choice.name == backend else choice
            for choice in request.backends
        )
        return replace(request, backends=choices, pins=(*request.pins, *self.pins), edits=(*request.edits, *self.edits))


class Tried(NamedTuple):
    """A remedy that was tried.

    Attributes:
        backend: The backend that the node shall go to.
        remedy: The remedy.
        why_not: Why it does not help; empty if it does.
        nodes: How many nodes the backend has then.
    """

    backend: str
    remedy: Remedy
    why_not: str = ""
    nodes: int = 0

    def __str__(self) -> str:
        if self.why_not:
            return f"tried in vain for {self.backend}: {self.remedy.text} ({self.why_not})"
        return f"tried: {self.remedy.text} brings it to {self.backend}, which has {counted(self.nodes, 'node')} then"


def try_remedies(model: Model, request: Request, name: str, plugins: PluginSet) -> list[Tried]:
    """Try what might bring a node to each backend of a request that does not have it.

    Candidates are those of the backend's strategy, then a pin, then other values of its options. The first one that
    works ends the search for this backend.

    Args:
        model: The source model.
        request: The request that was compiled.
        name: The name of the node in the plan.
        plugins: What is installed.

    Raises:
        DovetailError: The request itself cannot be planned any more.
    """
    from dovetail.compilation import Planner
    from dovetail.passes.context import Context

    ctx = Context(request, plugins=plugins)
    ctx.remedies_for = name
    plan = Planner(model, ctx).decide()[1]
    node = plan.named(name)
    found = []
    for backend in ctx.backends:
        if backend.name == node.backend:
            break  # it is on the backend that is preferred to all that follow
        own = [remedy for owner, remedy in ctx.remedies if owner == backend.name]
        candidates = [*own, *_pin(name, backend.name), *_options(backend)]
        found += _search(model, request, node.output, backend.name, candidates[:_MOST_TRIED], plugins)
    return found


def _search(
    model: Model, request: Request, output: str, backend: str, candidates: Iterable[Remedy], plugins: PluginSet
) -> Iterator[Tried]:
    for remedy in candidates:
        tried = _try(model, remedy, remedy.applied(request, backend), output, backend, plugins)
        yield tried
        if not tried.why_not:
            return


def _try(model: Model, remedy: Remedy, request: Request, output: str, backend: str, plugins: PluginSet) -> Tried:
    from dovetail.compilation import Planner
    from dovetail.passes.context import Context

    try:
        plan: Plan = Planner(model, Context(request, plugins=plugins)).decide()[1]
    except DovetailError as error:
        return Tried(backend, remedy, error.message)
    node = plan.find(output)
    if node is None or node.backend != backend:
        return Tried(backend, remedy, f"it is on {node.backend} all the same" if node is not None else "it is gone")
    return Tried(backend, remedy, "", plan.summary["coverage"][backend])


def _pin(name: str, backend: str) -> Iterator[Remedy]:
    yield Remedy(f"--pin '{name}={backend}'", pins=(f"name:{name}={backend}",))


def _options(backend: object) -> Iterator[Remedy]:
    """Every other value of every option that the backend lists."""
    for option, values in getattr(backend, "options", {}).items():
        for value in values:
            if value != backend.chosen.get(option):
                yield Remedy(f"--backend {backend.name}:{option}={value}", options={option: value})
