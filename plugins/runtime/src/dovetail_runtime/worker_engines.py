"""Engines on the workers of a cluster: which of them has what a result needs.

Every worker is asked which engines are available on it; nothing has to be said when it is started. Of the engines of a
backend the one counts that the backend prefers, of those that any worker or this machine has: so a result is computed
as on a machine with all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, NoEngineError
from dovetail.planning import HOST
from dovetail.plugin import load_plugins
from dovetail.plugin.loading import described, make_engine
from dovetail.text import abbreviated, pluralize
from dovetail_onnx.files.parsing import Malformed, parse_json

from dovetail_runtime.engines import TARGET_ONLY, GuardedEngine

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, Registry

Needs = Mapping[str, Sequence[str]]
"""The engines of each backend whose nodes are to be executed, in its order of preference."""

Offers = Mapping[str, str]
"""Why an engine is not available on a machine, by its name; empty for those that are."""


def engines_on_this_machine(registry: Registry, names: Iterable[str]) -> dict[str, str]:
    """Return why engines are not available here, by name; empty for those that are."""
    found: dict[str, str] = {}
    for name in names:
        try:
            ok, why = GuardedEngine(make_engine(registry, name)).available()
        except DovetailError as error:
            ok, why = False, error.message
        except Exception as error:  # a module that cannot be imported may raise anything
            ok, why = False, described(error)
        found[name] = "" if ok else " ".join(why.split()) or "it is not available"
    return found


def engines_of_worker(blocked: Sequence[str]) -> str:
    """Return what `engines_on_this_machine` gives for all engines of a worker, as JSON."""
    registry = load_plugins(block=blocked).registry
    return json.dumps(engines_on_this_machine(registry, registry.engine))


def offers_in(answer: object) -> Offers:
    """Return the engines that a worker told of; one that answers anything else has none."""
    try:
        found: Any = parse_json(answer) if isinstance(answer, str) else {}
    except Malformed:
        found = {}
    return {str(name): str(why) for name, why in found.items()} if isinstance(found, dict) else {}


def needs_of(compiled: CompiledModel) -> Needs:
    """Return the engines that run a result, by backend; the host's are everywhere."""
    used = {row["backend"] for row in compiled.placement_table()} - {HOST}
    return {backend.name: tuple(backend.engines) for backend in compiled.backends if backend.name in used}


def may_have_stand_ins(compiled: CompiledModel) -> bool:
    """Whether engines of the host run a result where no engine of its backend is."""
    return compiled.artifacts is None and TARGET_ONLY in compiled.plan.summary.get("options", {})


@dataclass(frozen=True)
class EngineChoice:
    """The machines that run something.

    Attributes:
        workers: The names of the workers that have every engine.
        engines: The engine of each backend, by its name.
        is_here: Whether this machine has all of them, too.
    """

    workers: tuple[str, ...]
    engines: Mapping[str, str]
    is_here: bool


def chosen_workers(
    offered: Mapping[str, Offers], here: Offers, needs: Needs, has_stand_ins: bool = False
) -> EngineChoice:
    """Return the workers that have the preferred engine of every backend.

    Args:
        offered: What each worker offers, by its name.
        here: What this machine offers.
        needs: The backends with their engines.
        has_stand_ins: Whether engines of the host run what is of a backend without any engine.

    Raises:
        NoEngineError: No worker has them all.
    """
    machines = [*offered.values(), here]
    best = {backend: min(_rank(one, engines) for one in machines) for backend, engines in needs.items()}
    for backend, rank in best.items():
        if rank == math.inf and not has_stand_ins:
            raise _no_engine(offered, needs[backend], backend)

    def has_all(one: Offers) -> bool:
        return all(_rank(one, engines) <= best[backend] for backend, engines in needs.items())

    workers = tuple(sorted(name for name, one in offered.items() if has_all(one)))
    engines = {name: needs[name][int(rank)] for name, rank in best.items() if rank < math.inf}
    if workers:
        return EngineChoice(workers, engines, has_all(here))
    wanted = " and ".join(f"{engine} ({backend})" for backend, engine in engines.items())
    way = "; it is on this machine: leave out the cluster" if has_all(here) else ""
    raise NoEngineError(f"no worker has {wanted}", _offers_text(offered) + way)


def _no_engine(offered: Mapping[str, Offers], engines: Sequence[str], backend: str) -> NoEngineError:
    """Return the error that no worker has an engine of a backend."""
    reasons = {name: next((one[name] for one in offered.values() if one.get(name)), "") for name in engines}
    named = "; ".join(f"{name}: {why or 'it is not installed'}" for name, why in reasons.items())
    return NoEngineError(f"no worker has an engine of {backend} ({named})", _offers_text(offered))


def _rank(offers: Offers, engines: Sequence[str]) -> float:
    """Return the place of the first engine that a machine has; infinite if it has none."""
    return next((float(place) for place, name in enumerate(engines) if offers.get(name) == ""), math.inf)


def _offers_text(offered: Mapping[str, Offers]) -> str:
    """Say which engines workers have; those with the same ones together."""
    kinds: dict[str, list[str]] = {}
    for name, offers in sorted(offered.items()):
        engines = ", ".join(sorted(engine for engine, why in offers.items() if not why)) or "no engine"
        kinds.setdefault(engines, []).append(name)
    said = [
        f"{names[0]} has {engines}" if len(names) == 1 else f"{pluralize(len(names), 'worker')} have {engines}"
        for engines, names in kinds.items()
    ]
    return abbreviated("; ".join(said))
