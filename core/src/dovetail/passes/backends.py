"""Loading backend files with what the plugins brought: policies, files they extend, and facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning.placement import HOST

if TYPE_CHECKING:
    from dovetail.passes.request import BackendChoice
    from dovetail.plugin.registry import Registry
    from dovetail.schema import Backend
    from dovetail.schema.yaml_source import Source

__all__ = ["load_backend_file", "load_chosen"]


def load_chosen(registry: Registry, choice: BackendChoice) -> Backend:
    """The backend that the user chose, with the options that the user gave.

    Raises:
        DovetailError: No plugin brings it, an option is unknown, or its file is at fault.
    """
    if choice.name == HOST and HOST not in registry.backend:
        raise DovetailError(
            "the backend 'host', which runs what no other backend takes, is not installed or was left out",
            "pip install dovetail-host",
        )
    return load_backend_file(registry, registry.backend[choice.name], choice.options)


def load_backend_file(registry: Registry, source: Source, options: Mapping[str, str]) -> Backend:
    """A backend file, where the names in it mean what the plugins registered.

    Raises:
        DovetailError: An option is unknown, or the file is at fault.
    """
    from dovetail.schema import load_backend

    def find(kind: str, name: str) -> Source | None:
        return getattr(registry, kind).get(name)

    return load_backend(source, find, options=options, facts=frozenset(registry.fact))
