"""Trials of remedies: each change that might bring a node to a backend is tested by planning again."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dovetail.compiler import Driver
from dovetail.errors import DovetailError, PinError
from dovetail.passes import Context, Request
from dovetail.planning import parse_pin
from dovetail.plugin import Remedy, input_data
from dovetail.text import pluralize
from dovetail_onnx.frontend import fixing_option, open_inputs
from dovetail_transforms.canonicalize.fix_shapes import OPTION, shapes_by_name

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.planning import Plan, PlannedNode
    from dovetail.plugin import Backend, PluginSet


_MOST_TRIED = 12


class RemedyTrial(NamedTuple):
    """A remedy that was tried.

    Attributes:
        backend: The target backend.
        remedy: The remedy.
        why_not: Why it does not help; empty if it does.
        nodes: The number of nodes that the backend then has.
        refused: Why the backend rejects a pin of the remedy; empty if it does not.
    """

    backend: str
    remedy: Remedy
    why_not: str = ""
    nodes: int = 0
    refused: str = ""

    def __str__(self) -> str:
        if self.why_not:
            return f"tried in vain for {self.backend}: {self.remedy.text} ({self.why_not})"
        return f"tried: {self.remedy.text} brings it to {self.backend}, which has {pluralize(self.nodes, 'node')} then"


class RemedyTrials:
    """Plans one request with one remedy at a time.

    Args:
        model: The source model.
        request: The request that was compiled.
        plugins: The installed plugins.
        names: The nodes that remedies may be requested for with `of`.

    Attributes:
        backends: The backends of the request, in order.
        made: The number of plans made.

    Raises:
        DovetailError: The request itself can no longer be planned.
    """

    def __init__(self, model: Model, request: Request, plugins: PluginSet, names: Collection[str]):
        ctx = Context(request, plugins=plugins)
        self._model, self._request, self._plugins = model, request, plugins
        self._driver = Driver(model, ctx)
        self._driver.prepare()
        ctx.remedies_for = names
        self._plan = self._driver.decide()[1]
        self._of_strategies, ctx.remedies, ctx.remedies_for = ctx.remedies, {}, ()
        self.backends: Sequence[Backend] = ctx.backends
        self.made = 1
        self._fixing = _fixing(model, request)
        self._with_options: dict[object, Plan | DovetailError] = {}

    def of(self, name: str, suggested: Iterable[Remedy] = ()) -> Iterator[RemedyTrial]:
        """Try remedies for each backend preferred to the node's present one, cheapest first.

        Candidates are suggestions in remarks on the node, remedies from the backend's strategy, a pin, fixed shapes for
        a model that leaves extents open, and other values of the backend's options. The first one that works ends the
        search for this backend.

        Args:
            name: The name of the node in the plan.
            suggested: Suggestions in remarks on the node.
        """
        node = self._plan.named(name)
        for backend in self.backends:
            if backend.name == node.backend:
                break
            yield from self.for_backend(backend, node, suggested)

    def for_backend(
        self, backend: Backend, node: PlannedNode, suggested: Iterable[Remedy] = (), refused: bool = False
    ) -> Iterator[RemedyTrial]:
        """Try remedies for one backend, up to the first one that works.

        Args:
            backend: The backend.
            node: The node.
            suggested: Suggestions in remarks on the node.
            refused: Whether the backend's file rejects the node, so that no pin can help.
        """
        name = node.name or node.output
        of_remarks = [remedy for remedy in suggested if _backend_of(remedy) in (backend.name, "")]
        of_strategies = self._of_strategies.get(name, ())
        asked = [*of_remarks, *(remedy for owner, remedy in of_strategies if owner in (backend.name, ""))]
        candidates: dict[object, Remedy] = {}
        own = [] if refused else [_pin(name, backend)]
        own += [] if self._fixing is None else [self._fixing]
        for remedy in sorted((*asked, *own, *_options(backend)), key=lambda one: not one.why_not):
            candidates.setdefault(_effect(remedy), remedy)
        for remedy in sorted(candidates.values(), key=_cost)[:_MOST_TRIED]:
            tried = self._try(backend.name, remedy, node)
            yield tried
            if not tried.why_not:
                return

    def _try(self, backend: str, remedy: Remedy, wanted: PlannedNode) -> RemedyTrial:
        if remedy.why_not:
            return RemedyTrial(backend, remedy, remedy.why_not)
        plan = self._planned(backend, remedy)
        if isinstance(plan, DovetailError):
            return RemedyTrial(backend, remedy, plan.message, 0, plan.reason if isinstance(plan, PinError) else "")
        node = _again(plan, wanted)
        if node is None or node.backend != backend:
            return RemedyTrial(
                backend, remedy, f"it is on {node.backend} all the same" if node is not None else "it is gone"
            )
        return RemedyTrial(backend, remedy, "", plan.summary["coverage"][backend])

    def _planned(self, backend: str, remedy: Remedy) -> Plan | DovetailError:
        """Return the plan with a remedy, or the error. Plans with another option value are shared by all nodes."""
        key = (backend, _effect(remedy)) if not remedy.pins and not remedy.edits else None
        if key is not None and key in self._with_options:
            return self._with_options[key]
        self.made += 1
        try:
            plan: Plan | DovetailError = self._decide(backend, remedy)
        except DovetailError as error:
            plan = error
        if key is not None:
            self._with_options[key] = plan
        return plan

    def _decide(self, backend: str, remedy: Remedy) -> Plan:
        """Plan with a remedy. Pins alone reuse the prepared model; other changes prepare it again."""
        fixes = remedy is self._fixing
        if not remedy.edits and not remedy.options and not fixes:
            return self._driver.decide(pins=remedy.pins)[1]
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
        if fixes:
            given, texts = changed.options.get(OPTION, {}), shlex.split(remedy.text)[1::2]
            changed = replace(changed, options={**changed.options, OPTION: {**given, **shapes_by_name(texts)}})
        return Driver(self._model, Context(changed, plugins=self._plugins)).decide()[1]


def _again(plan: Plan, node: PlannedNode) -> PlannedNode | None:
    """Return the entry of the same node in another plan, where an edit after it may have taken over its output name."""
    found = plan.find(node.output)
    if found is not None and (found.name, found.op_type) == (node.name, node.op_type):
        return found
    return next((other for other in plan.nodes if (other.name, other.op_type) == (node.name, node.op_type)), found)


def _cost(remedy: Remedy) -> tuple[int, int, int]:
    """Rank remedies: an option changes the device or tool, an edit or a shape the model, a pin nothing else."""
    return len(remedy.options), len(remedy.edits) or not (remedy.options or remedy.pins), len(remedy.pins)


def _effect(remedy: Remedy) -> object:
    """Return a key that is equal for remedies with the same effect, however they are written."""
    pins = frozenset(pin.removeprefix("name:") for pin in remedy.pins)
    return pins, frozenset(remedy.edits), tuple(sorted(remedy.options.items()))


def _fixing(model: Model, request: Request) -> Remedy | None:
    """Return the option that fixes what the model leaves open, by the data if there is some; None if it cannot."""
    inputs = [value for value in open_inputs(model) if value.name not in request.options.get(OPTION, {})]
    if not inputs:
        return None
    try:
        known = input_data(request.data).extents(model) if request.data is not None else {}
    except DovetailError:
        return None  # samples differ, so that any shape rejects some of them
    text, complete = fixing_option(inputs, known)
    return Remedy(text) if complete and ":" in text else None


def _pin(name: str, backend: Backend) -> Remedy:
    quoted = f"{name}={backend.name}".replace("'", "'\"'\"'")
    return Remedy(f"--pin '{quoted}'", pins=(f"name:{name}={backend.name}",))


def _options(backend: Backend) -> Iterator[Remedy]:
    """Yield every other value of every option that the backend lists."""
    idle = backend.idle_options
    for option, values in backend.options.items():
        if option in idle:
            continue
        for value in values:
            if value != backend.chosen.get(option):
                yield Remedy(f"--backend {backend.name}:{option}={value}", options={option: value})


def _backend_of(remedy: Remedy) -> str:
    """Return the backend that a remedy is for; empty for any."""
    try:
        named = (parse_pin(pin)[1] for pin in remedy.pins)
        return remedy.backend or next(named, "")
    except DovetailError:  # malformed in an edited result; the trial reports it
        return ""
