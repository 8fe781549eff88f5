"""Listing of backends, without loading any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin.backend import BackendSummary
from dovetail.plugin.engine import make_engine
from dovetail.plugin.loading.isolation import calling

if TYPE_CHECKING:
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.loading.loader import PluginSet
    from dovetail.plugin.loading.registry import Registry


@dataclass(frozen=True)
class BackendInfo:
    """The listing of one backend.

    Attributes:
        name: Its name, as after `--backend`.
        summary: A one-line description.
        distribution: The distribution that brings it.
        engines: Name, availability here, and the reason or caveat of each engine, in order of preference.
        needs: The device that it runs on.
        error: The error in its file, or empty.
    """

    name: str
    summary: str
    distribution: str
    engines: tuple[tuple[str, bool, str], ...] = ()
    needs: str = ""
    error: str = ""


def backends(plugins: PluginSet | None = None) -> list[BackendInfo]:
    """List the installed backends, by name, without loading any engine."""
    from dovetail.plugin.loading.loader import load_plugins

    registry = (plugins or load_plugins()).registry
    found = []
    for entry in registry.backend.entries:
        try:
            seen = _peek(entry.name, registry)
            engines = tuple(_engine_info(name, registry) for name in seen.engines)
            found.append(BackendInfo(entry.name, seen.summary, entry.owner, engines, seen.device))
        except DovetailError as error:
            found.append(BackendInfo(entry.name, "", entry.owner, error=error.message))
    return found


def _peek(name: str, registry: Registry) -> BackendSummary | Backend:
    """Return the summary of a backend; its file is not fully checked."""
    from dovetail.planning.request import BackendChoice
    from dovetail.plugin.loading.backend_files import named_format_of
    from dovetail.plugin.loading.backends import load_chosen

    if not registry.backend.is_file(name):
        return load_chosen(registry, BackendChoice(name))
    source = registry.backend[name]
    title, format_ = named_format_of(registry, source)
    with calling(title):
        seen = format_.peek(source)
    if not isinstance(seen, BackendSummary):
        raise DovetailError(f"{title} sees {type(seen).__name__} in {source.name}", "`peek` gives a BackendSummary")
    if not (seen.device and seen.engines) and seen.extends in registry.backend:
        below = _peek(seen.extends, registry)
        return seen._replace(device=seen.device or below.device, engines=seen.engines or tuple(below.engines))
    return seen


def _engine_info(name: str, registry: Registry) -> tuple[str, bool, str]:
    try:
        ok, why = make_engine(registry, name).available()
    except (DovetailError, ImportError) as error:
        return name, False, str(error).partition("\n")[0]
    return name, ok, why
