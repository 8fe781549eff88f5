"""Remedies: what might bring a node to a backend, tried on the plan before anybody is told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dovetail.compilation import Planner
from dovetail.counting import counted
from dovetail.errors import DovetailError
from dovetail.passes import Context, Request
from dovetail.plugin import Remedy

from dovetail_explain.suggestions import as_remedy

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.plugin import Backend, PluginSet

__all__ = ["Tried", "try_remedies"]

_MOST_TRIED = 12


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


def try_remedies(
    model: Model, request: Request, name: str, plugins: PluginSet, suggested: Sequence[str] = ()
) -> list[Tried]:
    """Try what might bring a node to each backend of a request that does not have it.

    Candidates are what remarks on the node suggest, what the backend's strategy does, a pin, and other values of its
    options. The first one that works ends the search for this backend.

    Args:
        model: The source model.
        request: The request that was compiled.
        name: The name of the node in the plan.
        plugins: What is installed.
        suggested: Suggestions of remarks; those that are no change of a request are left out.

    Raises:
        DovetailError: The request itself cannot be planned any more.
    """
    ctx = Context(request, plugins=plugins)
    planner = Planner(model, ctx)
    planner.prepare()
    ctx.remedies_for = name
    node = planner.decide()[1].named(name)
    of_strategies, ctx.remedies_for = list(ctx.remedies), ""
    of_remarks = [found for text in suggested if (found := as_remedy(text)) is not None]
    trials = _Trials(planner, model, request, node.output, plugins)
    tried: list[Tried] = []
    for backend in ctx.backends:
        if backend.name == node.backend:
            break  # it is on the backend that is preferred to all that follow
        asked = [remedy for owner, remedy in (*of_remarks, *of_strategies) if owner in (backend.name, "")]
        candidates = {remedy.text: remedy for remedy in (*asked, _pin(name, backend), *_options(backend))}
        tried += trials.of(backend.name, list(candidates.values())[:_MOST_TRIED])
    return tried


class _Trials:
    """Plans one request with one remedy after the other."""

    def __init__(self, planner: Planner, model: Model, request: Request, output: str, plugins: PluginSet):
        self._planner, self._model, self._request = planner, model, request
        self._output, self._plugins = output, plugins

    def of(self, backend: str, remedies: Iterable[Remedy]) -> Iterator[Tried]:
        """Try one after the other, up to the first that brings the node to the backend."""
        for remedy in remedies:
            tried = self._try(backend, remedy)
            yield tried
            if not tried.why_not:
                return

    def _try(self, backend: str, remedy: Remedy) -> Tried:
        try:
            plan = self._decide(backend, remedy)
        except DovetailError as error:
            return Tried(backend, remedy, error.message)
        node = plan.find(self._output)
        if node is None or node.backend != backend:
            return Tried(backend, remedy, f"it is on {node.backend} all the same" if node is not None else "it is gone")
        return Tried(backend, remedy, "", plan.summary["coverage"][backend])

    def _decide(self, backend: str, remedy: Remedy):
        """The plan with a remedy. Only pins leave what the model is prepared for as it is."""
        if not remedy.edits and not remedy.options:
            return self._planner.decide(pins=remedy.pins)[1]
        choices = tuple(
            replace(choice, options={**choice.options, **remedy.options}) if choice.name == backend else choice
            for choice in self._request.backends
        )
        changed = replace(
            self._request,
            backends=choices,
            pins=(*self._request.pins, *remedy.pins),
            edits=(*self._request.edits, *remedy.edits),
        )
        return Planner(self._model, Context(changed, plugins=self._plugins)).decide()[1]


def _pin(name: str, backend: Backend) -> Remedy:
    return Remedy(f"--pin '{name}={backend.name}'", pins=(f"name:{name}={backend.name}",))


def _options(backend: Backend) -> Iterator[Remedy]:
    """Every other value of every option that the backend lists."""
    for option, values in getattr(backend, "options", {}).items():
        for value in values:
            if value != backend.chosen.get(option):
                yield Remedy(f"--backend {backend.name}:{option}={value}", options={option: value})
