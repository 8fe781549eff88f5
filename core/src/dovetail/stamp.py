"""The stamp in a compiled model: which request it is the result of."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.planning.placement import HOST
from dovetail.verification.sources import data_digest

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context, Pass, Request
    from dovetail.plugin.registry import Table

__all__ = ["STAMP", "stamp_for", "stamp_of"]

STAMP = "dovetail.request"
"""Its key in the model's metadata."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def stamp_for(
    request: Request, ctx: Context, passes: Sequence[Pass] = (), tried: Mapping[str, str] | None = None
) -> str:
    """A hash of the request and of everything else that the result depends on besides the model.

    That is the plan that is replayed, the data, every file that backends, policies and cost tables are read
    from, the version of every distribution that takes part, and the engines that may have refused something.

    Args:
        request: The request.
        ctx: Its context.
        passes: Passes of the caller.
        tried: The engines that the result is tried on, by backend.

    Returns:
        The hash; empty where something shapes the result that cannot be compared later: passes of the caller, or data
        that a function gives.
    """
    data = data_digest(request.data) if request.data is not None else "none"
    if passes or not data:
        return ""
    plan = request.plan.as_dict() if hasattr(request.plan, "as_dict") else request.plan
    parts = {
        "request": {key: value for key, value in request.as_dict().items() if key not in ("data", "plan")},
        "plan": plan and {key: value for key, value in plan.items() if key != "remarks"},
        "files": _files_read(request, ctx),
        "data": data,
        "versions": _versions(ctx),
        "tried": dict(tried or {}),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def stamp_of(model: Model) -> str:
    """The stamp that `model` carries, or empty."""
    if not model.untouched:
        return model.ir.metadata_props.get(STAMP, "")
    return next((entry.value for entry in model.skeleton().proto.metadata_props if entry.key == STAMP), "")


def _files_read(request: Request, ctx: Context) -> dict[str, str]:
    """A hash of every file that may be read for the request, by the name it is registered under."""
    registry, found = ctx.registry, {}
    chosen = {HOST, *(choice.name for choice in request.backends)}
    for table in (registry.policy, registry.cost_table, registry.backend):
        for name in table:
            source = _source(table, name) if table.is_file(name) else None
            found[f"{table.kind} {name}"] = _digest(source)
            if table is registry.backend and name in chosen:
                found |= {f"{name}: {path}": _digest(near) for path, near in _beside(source)}
    costs = request.costs and Path(request.costs)
    return found | ({"costs": _digest(costs)} if costs and costs.is_file() else {})


def _source(table: Table, name: str) -> Any:
    try:
        return table[name]
    except DovetailError:
        return None  # what cannot be loaded is said where it is needed


def _beside(source: Any) -> Iterator[tuple[str, Any]]:
    """The files that a backend file can name without anybody having registered them."""
    parent = getattr(source, "parent", None)
    for folder in (".", "../policies", "../backends") if parent is not None else ():
        near = parent.joinpath(folder)
        if near.is_dir():
            yield from ((f"{folder}/{file.name}", file) for file in near.iterdir() if file.name.endswith(".yaml"))


def _digest(source: Any) -> str:
    try:
        return hashlib.sha256(source.read_bytes()).hexdigest() if source is not None else ""
    except OSError:
        return ""


def _versions(ctx: Context) -> dict[str, str]:
    """The versions of Dovetail, of the distributions that bring plugins, and of what those require."""
    records = [record for record in ctx.plugins.plugins if record.status == "ok"] if ctx.plugins else []
    versions = {f"plugin {record.name}": record.version for record in records}
    names = {"dovetail", *(record.distribution for record in records)}
    for name in sorted(names):
        for required in {name, *_requirements(name)}:
            versions.setdefault(required, _version(required))
    return versions


def _requirements(distribution: str) -> set[str]:
    try:
        texts = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return set()
    return {found[0] for text in texts if "extra ==" not in text and (found := _NAME.match(text))}


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
