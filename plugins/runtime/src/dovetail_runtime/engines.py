"""The engines of backends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from dovetail.errors import DovetailError
from dovetail.plugin.engine import make_engine

from dovetail_runtime.guard import GuardedEngine

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.registry import Registry


Engines: TypeAlias = "Mapping[str, Sequence[GuardedEngine]]"
"""The engines of every backend, in its order of preference."""

_KEPT = "engines"


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
                engines.append(GuardedEngine(make_engine(registry, name), owner, backend.chosen))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                missing.append(f"{name}: {error or type(error).__name__}")
        if not engines:
            raise DovetailError(
                f"backend '{backend.name}' has no engine here ({'; '.join(missing) or 'its file names none'})",
                "install the distribution that brings one",
            )
        found[backend.name] = engines
    return found


def engines_in(ctx: Context) -> Engines:
    """The engines of the chosen backends and of the host, made once per context.

    Raises:
        DovetailError: A backend has no engine at all.
    """
    if _KEPT not in ctx.kept:
        ctx.kept[_KEPT] = engines_of((*ctx.backends, ctx.host), ctx.registry)
    return ctx.kept[_KEPT]
