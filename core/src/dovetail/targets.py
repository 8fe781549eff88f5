"""The chosen backends: their files, loaded with what the installed plugins bring, and their engines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes.request import BackendChoice
from dovetail.plan.placement import HOST

if TYPE_CHECKING:
    from dovetail.registry import Registry
    from dovetail.runtime.engine import Engine
    from dovetail.schema import Backend

__all__ = ["engines_of", "load_target", "load_targets"]


def load_targets(choices: Iterable[BackendChoice], registry: Registry) -> tuple[Backend, ...]:
    """The backends of `choices`, in their order.

    Raises:
        DovetailError: One is not installed, is chosen twice, or its file has a mistake.
    """
    found: dict[str, Backend] = {}
    for choice in choices:
        if choice.name in found:
            raise DovetailError(f"backend '{choice.name}' is chosen twice", "name each backend once")
        if choice.name == HOST:
            continue  # it always takes what is left
        found[choice.name] = load_target(choice.name, registry, choice)
    return tuple(found.values())


def load_target(name: str, registry: Registry, choice: BackendChoice | None = None) -> Backend:
    """The backend called `name`.

    Raises:
        DovetailError: It is not installed, or its file has a mistake.
    """
    from dovetail.schema import load_backend

    shelves = {"policy": registry.policy, "backend": registry.backend, "dialect": registry.dialect}

    def find(kind: str, wanted: str):
        shelf = shelves[kind]
        return shelf[wanted] if wanted in shelf else None

    options = dict(choice.options) if choice else {}
    return load_backend(registry.backend[name], find, options, facts=frozenset(registry.fact))


def engines_of(backends: Iterable[Backend], registry: Registry) -> dict[str, list[Engine]]:
    """The engines of every backend, in its order of preference; an engine that does not import is left out.

    Raises:
        DovetailError: A backend has no engine at all.
    """
    found = {}
    for backend in backends:
        engines, missing = [], []
        for name in backend.engines:
            try:
                engines.append(registry.engine[name]())
            except (DovetailError, ImportError) as error:
                missing.append(f"{name}: {error}")
        if not engines:
            raise DovetailError(
                f"backend '{backend.name}' has no engine here ({'; '.join(missing) or 'its file names none'})",
                "install the distribution that brings one",
            )
        found[backend.name] = engines
    return found
