"""Listing backends, without loading any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.registry import Registry

__all__ = ["BackendInfo", "backends"]


@dataclass(frozen=True)
class BackendInfo:
    """What a listing says of a backend.

    Attributes:
        name: As after `--backend`.
        summary: One line.
        distribution: Who brings it.
        engines: Name, whether it runs here, and why not or with what caveat, in order of preference.
        needs: The device it runs on.
        error: What is wrong with its file, or empty.
    """

    name: str
    summary: str
    distribution: str
    engines: tuple[tuple[str, bool, str], ...] = ()
    needs: str = ""
    error: str = ""


def backends(plugins: PluginSet | None = None) -> list[BackendInfo]:
    """The installed backends, by name. No engine is loaded."""
    from dovetail.plugin.loader import load_plugins
    from dovetail.schema.peek import peek_backend

    registry = (plugins or load_plugins()).registry
    found = []
    for entry in registry.backend.entries:
        try:
            seen = peek_backend(registry.backend[entry.name])
            engines = tuple(_engine_info(name, registry) for name in seen.engines)
            found.append(BackendInfo(entry.name, seen.summary, entry.owner, engines, seen.device))
        except DovetailError as error:
            found.append(BackendInfo(entry.name, "", entry.owner, error=error.message))
    return found


def _engine_info(name: str, registry: Registry) -> tuple[str, bool, str]:
    try:
        ok, why = registry.engine[name]().available()
    except (DovetailError, ImportError) as error:
        return name, False, str(error).partition("\n")[0]
    return name, ok, why
