"""What was tried to bring a node to a backend, for `explain`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.files import file_sha256
from dovetail.planning.placement import HOST
from dovetail.planning.remedies import try_remedies

if TYPE_CHECKING:
    from dovetail.planning.plan import Plan
    from dovetail.planning.plan_entries import PlannedNode
    from dovetail.plugin.loader import PluginSet

__all__ = ["remedy_lines"]


_MOST_NODES = 20_000
"""Nodes up to which remedies are tried without being asked for: each of them plans the whole model."""


def remedy_lines(
    plan: Plan, selector: str | None, result: object, model: object = None, plugins: PluginSet | None = None
) -> list[str]:
    """Try what might bring one node to the backends that are preferred to the one it is on.

    Returns:
        Lines of text; none if the selector names no single node, or the node is where it is wanted most.

    Raises:
        DovetailError: A model is given that is not the one of the plan.
    """
    from dovetail.frontends import open_any, open_file
    from dovetail.passes.request import Request
    from dovetail.plugin.loader import load_plugins

    node, request = _one(plan, selector), plan.summary.get("request")
    if node is None or not request or not _wanted_elsewhere(node, plan):
        return []
    plugins = plugins or load_plugins()
    wanted = Request.from_dict({**request, "data": None})
    if absent := [choice.name for choice in wanted.backends if choice.name not in plugins.registry.backend]:
        return [f"remedies were not tried, because backend '{absent[0]}' is not installed"]
    if model is None and len(plan.nodes) > _MOST_NODES:
        return [f"remedies were not tried, because the model has {len(plan.nodes)} nodes: --model FILE"]
    if model is None:
        path = _beside(plan, result)
        if path is None:
            name = plan.model.get("path") or "the source model"
            return [f"remedies were not tried, because {name} was not found: --model FILE"]
        opened = open_file(path, plugins)
    else:
        opened = open_any(model, plugins)
        if opened.path is not None and not _is_it(plan, opened.path):
            raise DovetailError(f"{opened.path} is not the model that was compiled", "give the one that the plan names")
    data = request.get("data")
    wanted = replace(wanted, data=data if data and Path(data).exists() else None)
    return [str(tried) for tried in try_remedies(opened, wanted, node.name or node.output, plugins)]


def _one(plan: Plan, selector: str | None) -> PlannedNode | None:
    if not selector:
        return None
    found = [node for node in plan.nodes if selector in (node.name, node.output) or selector in node.origin]
    return found[0] if len(found) == 1 else None


def _wanted_elsewhere(node: PlannedNode, plan: Plan) -> bool:
    """Whether a backend of the request is preferred to the one that the node is on."""
    names = [entry["name"] for entry in plan.backends]
    return bool(names) and (node.backend == HOST or names[0] != node.backend)


def _beside(plan: Plan, result: object) -> Path | None:
    """The source model, by its name and digest: in the current folder, in that of the result, or beside it."""
    if plan.source is not None and plan.source.is_file():
        return plan.source
    name = plan.model.get("path")
    folder = Path(result) if isinstance(result, (str, Path)) else Path()
    folder = folder.parent if folder.is_file() else folder
    for place in (Path(), folder, folder.resolve().parent) if name else ():
        if (place / name).is_file() and _is_it(plan, place / name):
            return place / name
    return None


def _is_it(plan: Plan, path: Path) -> bool:
    return not plan.model.get("sha256") or file_sha256(path) == plan.model["sha256"]
