"""Cache key in a compiled model, which identifies its request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.files import seen
from dovetail.installed import DISTRIBUTION, InstalledDistributions
from dovetail.plugin import input_data

from dovetail_onnx.skeleton import skeleton_of

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context, Pass, Request
    from dovetail.plugin.loading import Table


STAMP = "dovetail.request"
"""Key of the cache key in the model's metadata."""


def cache_key_for(
    request: Request, ctx: Context, passes: Sequence[Pass] = (), tried: Mapping[str, str] | None = None
) -> str:
    """Return a hash of the request and of all other inputs of the result, except the model.

    The hash covers the replayed plan, the data, every backend file (including extended files, variants and policies),
    the cost tables, code registered by plugins, the versions of all involved distributions, and the engines that may
    have refused nodes.

    Args:
        request: The request.
        ctx: Its context.
        passes: Passes of the caller.
        tried: The engines on which the result is tried, by backend.

    Returns:
        The hash; empty if an input cannot be compared later: passes of the caller, or data from a function.
    """
    data = input_data(request.data).digest() if request.data is not None else "none"
    if passes or not data:
        return ""
    plan = request.plan.as_dict() if request.plan is not None else None
    parts = {
        "request": {key: value for key, value in request.as_dict().items() if key not in ("data", "plan")},
        "plan": plan and {key: value for key, value in plan.items() if key != "remarks"},
        "files": _files_read(request, ctx),
        "data": data,
        "code": _code(ctx),
        "versions": _versions(ctx),
        "tried": dict(tried or {}),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def cache_key_of(model: Model) -> str:
    """Return the cache key in `model`, or empty."""
    if not model.untouched:
        return model.ir.metadata_props.get(STAMP, "")
    return next((entry.value for entry in skeleton_of(model).proto.metadata_props if entry.key == STAMP), "")


def _files_read(request: Request, ctx: Context) -> dict[str, str]:
    """Hash every backend file and the cost tables."""
    registry = ctx.registry
    found: dict[str, str] = {}
    for backend in (*ctx.backends, ctx.host):
        table, name = registry.backend, backend.name
        registered = [_source(table, name)] if name in table and table.is_file(name) else []
        files = registered if backend.files is None else backend.files
        found |= {f"{name} {i} {file.name}": _digest(file) for i, file in enumerate(files) if file is not None}
    found |= {f"cost table {name}": _digest(_source(registry.cost_table, name)) for name in registry.cost_table}
    costs = request.costs and Path(request.costs)
    return found | ({"costs": _digest(costs)} if costs and costs.is_file() else {})


def _source(table: Table, name: str) -> Any:
    try:
        return table[name]
    except DovetailError:
        return None  # load errors are reported where the object is needed


def _digest(source: Any) -> str:
    try:
        return hashlib.sha256(seen(source).read_bytes()).hexdigest() if source is not None else ""
    except OSError:
        return ""


def _code(ctx: Context) -> list[list[str]]:
    """Return the registered code with its owners: a program may replace a strategy without installing anything."""
    # Commands and stores never affect a result.
    tables = [table for table in ctx.registry.tables if table.kind not in ("command", "result_store")]
    return [[table.kind, *entry] for table in tables for entry in table.entries if not table.is_file(entry.name)]


def _versions(ctx: Context) -> dict[str, str]:
    """Return the versions of Dovetail, of the plugins' distributions, and of their requirements."""
    records = [record for record in ctx.plugins.plugins if record.status == "ok"] if ctx.plugins else []
    names = {DISTRIBUTION, *(record.distribution for record in records)}
    installed = InstalledDistributions()
    # Extras too: an installed one may build what is otherwise only planned.
    names |= {needed for one in map(installed.get, names) if one for needed in one.required(with_extras=True)}
    versions = {name: one.version for name in names if (one := installed.get(name))}
    return versions | {f"plugin {record.name}": record.version for record in records}
