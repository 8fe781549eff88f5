"""Remedies for one node in `explain`: the outcome of the trials, or why none were made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.planning import HOST
from dovetail.plugin import load_plugins
from dovetail.plugin.loading import open_any, open_file
from dovetail_onnx.files.reading import file_sha256

from dovetail_commands.explain.trials import RemedyTrials

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.planning import Plan, PlannedNode, Remark, Remedy
    from dovetail.plugin import PluginSet

    from dovetail_commands.explain.trials import RemedyTrial


_UNCLAIMED = "nothing says why"


class Cause(NamedTuple):
    """The reason why a node is not on a backend.

    Attributes:
        rule: A short stable name: `not-supported`, `passive`, `tail`, `manual`, `pinned`, ...
        why: The reason in one clause.
        because: Names of the nodes that forced it.
        source: File and line of the rule, or empty.
    """

    rule: str
    why: str
    because: tuple[str, ...] = ()
    source: str = ""


def cause_of(plan: Plan, node: PlannedNode, backend: str) -> Cause:
    """Return why `node` is not on `backend`, from the remarks of the plan."""
    return cause_among([remark for remark in plan.remarks if remark.node == node.name], node, backend)


def cause_among(remarks: Iterable[Remark], node: PlannedNode, backend: str) -> Cause:
    """Return why `node` is not on `backend`, from the remarks on the node.

    A pin elsewhere counts first, then the rejection, then the strategy's remarks; among these, those naming the
    backend.
    """
    said = [remark for remark in remarks if remark.kind in ("failed", "missed")]
    pinned = next((remark for remark in remarks if remark.rule == "pinned" and node.backend != backend), None)
    own = [remark for remark in said if remark.backend == backend]
    found = pinned or next((r for r in said if r.kind == "failed"), None) or next(iter(own or said), None)
    if found is None:
        return Cause("unclaimed", _UNCLAIMED)
    why = found.reason if found.backend == backend and not found.format else found.why
    return Cause(found.rule, why, found.because, found.source)


_ABOVE = 2  # folders above that of a result: results are mostly written into `out` or `out/NAME` next to the model


_MOST_NODES = 20_000
"""Maximum nodes for unrequested trials: each trial plans the whole model."""


def remedy_lines(
    plan: Plan, node: PlannedNode, result: object, model: object = None, plugins: PluginSet | None = None
) -> list[str]:
    """Try remedies for the backends preferred to the node's present one, and return the outcome as lines.

    Args:
        plan: The plan.
        node: The node.
        result: The origin of the plan; the source model is searched near it.
        model: The source model, or None.
        plugins: The plugins to try remedies with; all installed ones by default.

    Raises:
        DovetailError: The given model is not that of the plan.
    """
    suggested = suggestions_among(remark for remark in plan.remarks if remark.node == node.name)
    untried = [f"suggested, and not tried: {text}" for text in dict.fromkeys(remedy.text for remedy in suggested)]
    if plan.request is None or not _wanted_elsewhere(node, plan):
        return untried
    name = node.name or node.output
    trials = trials_for(plan, result, model, plugins, (name,), most_nodes=_MOST_NODES)
    if isinstance(trials, str):
        return [*untried, f"remedies were not tried, because {trials}"]
    tried = list(trials.of(name, suggested))
    helped = {one.backend for one in tried if not one.why_not}
    missed = dict.fromkeys(one.backend for one in tried if one.backend not in helped)
    why = {backend: cause_of(plan, node, backend).why for backend in missed}
    return [
        *map(str, tried),
        *(f"none: no change of the request brings it to {backend}: {why[backend]}" for backend in missed),
    ]


def none_after(why: str, tried: Sequence[RemedyTrial]) -> str:
    """Explain why there is no remedy: why the node is elsewhere, and why a pin would fail.

    Args:
        why: Why the node is elsewhere.
        tried: The unsuccessful trials.
    """
    pin = next((one for one in tried if one.remedy.pins and not one.remedy.edits), None)
    reason = "" if pin is None else pin.refused
    return why if not reason or why in reason or reason in why else f"{why}; pinned, {reason}"


def suggestions_among(remarks: Iterable[Remark]) -> list[Remedy]:
    """Return the suggestions in remarks on a node that can be tried."""
    return [remark.remedy for remark in remarks if remark.remedy is not None]


def trials_for(
    plan: Plan, result: object, model: object, plugins: PluginSet | None, names: Collection[str], most_nodes: int
) -> RemedyTrials | str:
    """Return the trials of a plan's request, or why there can be none.

    Args:
        plan: The plan.
        result: The origin of the plan; the source model is searched near it.
        model: The source model, or None.
        plugins: The plugins to try remedies with; all installed ones by default.
        names: The nodes that remedies are requested for.
        most_nodes: Maximum nodes of a model that is opened without being given.

    Raises:
        DovetailError: The given model is not that of the plan.
    """
    if plan.request is None:
        return "the plan does not say what was asked for"
    plugins = plugins or load_plugins()
    wanted = plan.request
    if absent := [choice.name for choice in wanted.backends if choice.name not in plugins.registry.backend]:
        return f"backend '{absent[0]}' is not installed"
    opened = _opened(plan, result, model, plugins, most_nodes)
    if isinstance(opened, str):
        return f"{opened}: --model FILE"
    data = wanted.data if wanted.data and Path(wanted.data).exists() else None
    return RemedyTrials(opened, replace(wanted, data=data), plugins, names)


def _wanted_elsewhere(node: PlannedNode, plan: Plan) -> bool:
    """Check whether a backend of the request is preferred to the node's present one."""
    names = [one.name for one in plan.backends]
    return bool(names) and (node.backend == HOST or names[0] != node.backend)


def _opened(plan: Plan, result: object, model: object, plugins: PluginSet, most_nodes: int) -> Model | str:
    """Open the source model, or return why it is not available."""
    if model is not None:
        opened = open_any(model, plugins)
        if opened.path is not None and not _is_it(plan, opened.path):
            raise DovetailError(f"{opened.path} is not the model that was compiled", "give the one that the plan names")
        return opened
    if len(plan.nodes) > most_nodes:
        return f"the model has {len(plan.nodes)} nodes"
    path = _beside(plan, result)
    return open_file(path, plugins) if path else f"{plan.model.get('path') or 'the source model'} was not found"


def _beside(plan: Plan, result: object) -> Path | None:
    """Find the source model, by its name and digest, in one of `_places`."""
    if plan.source is not None and plan.source.is_file():
        return plan.source
    name = plan.model.get("path")
    if not isinstance(name, str) or not name:
        return None
    for place in _places(plan, result):
        path = place / name
        if path.is_file() and _is_it(plan, path):
            return path
    return None


def _places(plan: Plan, result: object) -> list[Path]:
    """Return the folders that may hold the source model.

    These are the current folder, that of the result and the two above it, and below each of these the folder recorded
    in the plan, which is relative to where the plan was made.
    """
    folder = Path(result) if isinstance(result, (str, Path)) else Path()
    folder = folder.parent if folder.is_file() else folder
    above = [folder, *list(folder.resolve().parents)[:_ABOVE]]
    recorded = plan.model.get("folder")
    # A plan is untrusted text: without a digest to identify the model, its folder is not followed.
    inner = recorded if isinstance(recorded, str) and plan.model.get("sha256") else ""
    return list(dict.fromkeys(place / part for place in (Path(), *above) for part in ("", *([inner] * bool(inner)))))


def _is_it(plan: Plan, path: Path) -> bool:
    return not plan.model.get("sha256") or file_sha256(path) == plan.model["sha256"]
