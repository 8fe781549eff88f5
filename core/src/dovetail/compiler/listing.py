"""Listing backends, without loading any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin.backend import BackendSummary
from dovetail.plugin.engine import make_engine
from dovetail.plugin.isolation import calling

if TYPE_CHECKING:
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.registry import Registry


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
    """What there is to see of a backend: its file is not read closely."""
    from dovetail.passes.backends import load_chosen
    from dovetail.passes.request import BackendChoice
    from dovetail.plugin.backend_files import named_format_of

    if not registry.backend.is_file(name):
        return load_chosen(registry, BackendChoice(name))
    source = registry.backend[name]
    who, format_ = named_format_of(registry, source)
    with calling(who):
        seen = format_.peek(source)
    if not isinstance(seen, BackendSummary):
        raise DovetailError(f"{who} sees {type(seen).__name__} in {source.name}", "`peek` gives a BackendSummary")
    return seen


def _engine_info(name: str, registry: Registry) -> tuple[str, bool, str]:
    try:
        ok, why = make_engine(registry, name).available()
    except (DovetailError, ImportError) as error:
        return name, False, str(error).partition("\n")[0]
    return name, ok, why
