"""The engines of backends, and the one that evaluates single nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.runtime.guard import GuardedEngine

if TYPE_CHECKING:
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.registry import Registry
    from dovetail.runtime.engine import Evaluator

__all__ = ["engines_of", "evaluator_of"]

_REFERENCE = "reference"


def engines_of(backends: Iterable[Backend], registry: Registry) -> dict[str, list[GuardedEngine]]:
    """The engines of every backend, in its order of preference; an engine that does not import is left out.

    Raises:
        DovetailError: A backend has no engine at all.
    """
    found = {}
    for backend in backends:
        engines, missing = [], []
        for name in backend.engines:
            try:
                owner = registry.engine.entry(name).owner
                engines.append(GuardedEngine(registry.engine[name](), owner, backend.chosen))
            except (Exception, SystemExit) as error:
                missing.append(f"{name}: {error or type(error).__name__}")
        if not engines:
            raise DovetailError(
                f"backend '{backend.name}' has no engine here ({'; '.join(missing) or 'its file names none'})",
                "install the distribution that brings one",
            )
        found[backend.name] = engines
    return found


def evaluator_of(registry: Registry) -> Evaluator | None:
    """The engine `reference`, if it is installed and evaluates single nodes.

    Raises:
        DovetailError: It is registered and cannot be loaded.
    """
    engine = registry.engine.get(_REFERENCE)
    return engine() if hasattr(engine, "evaluate") else None
