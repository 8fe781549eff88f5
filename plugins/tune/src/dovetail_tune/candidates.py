"""Candidates: requests whose results compete, one per backend, option and precision."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.passes import BackendChoice
from dovetail.planning import HOST
from dovetail.plugin.loading import load_chosen
from dovetail_runtime.worker_engines import engines_on_this_machine

if TYPE_CHECKING:
    from dovetail.plugin import Backend, Registry

_OPTIONS, _LAST = 3, 4  # ranks; defaults of backends have lower ones
_MARGINS = 2.0, 4.0  # dB above the goals at which raising aims, the second where the first was not enough
EVERY_NODE = "*"
POLICIES = "policies"  # the option of every backend that says which float operators are safe in low precision


@dataclass(frozen=True)
class Candidate:
    """A request that competes.

    Attributes:
        name: Its name in tables and in the journal: `cpu-int8`, `cpu-bf16 high`, `cpu-int8 raised further`.
        backends: Its backends, in order of preference.
        high: Selectors of nodes to compute in the types of the source model.
        pins: Manual placements.
        margin: Decibels by which nodes are raised to exceed the goals, because other samples judge than those that a
            search sees; 0 if none are raised.
        threads: Threads of each engine; 0 for the engine's own choice.
        why: Why it is tried, as a clause.
    """

    name: str
    backends: tuple[str, ...]
    high: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    margin: float = 0.0
    threads: int = 0
    why: str = field(default="", compare=False)

    @property
    def is_baseline(self) -> bool:
        """Whether this is the source model on the host, in its own types."""
        return self.backends == (HOST,)

    @property
    def is_mixed(self) -> bool:
        """Whether segments of the model have different candidates."""
        return bool(self.pins)

    def raised(self) -> Candidate | None:
        """Return the same request with nodes raised until the goals are met, or with more of them; None after that."""
        further = next((margin for margin in _MARGINS if margin > self.margin), None)
        if further is None:
            return None
        name, at, threads = self.name.partition(" @")
        name += " further" if self.margin else " raised"
        why = f"{self.name} is fast, and misses the goal: nodes are raised to exceed it by {further:g} dB"
        return replace(self, name=f"{name}{at}{threads}", margin=further, why=why)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for a worker and for the journal, which the reason does not matter to."""
        return {
            "name": self.name, "backends": list(self.backends), "high": list(self.high), "pins": list(self.pins),
            "margin": self.margin, "threads": self.threads,
        }  # fmt: skip


@dataclass(frozen=True)
class CandidateSet:
    """What competes, and what does not.

    Attributes:
        found: The candidates: the host alone, the defaults of all backends, and then other options.
        absent: Why other installed backends do not compete, by name.
        first_option: Position of the first one that is not the default of a backend.
        integers: Names of the backends that compute in integers.
    """

    found: tuple[Candidate, ...]
    absent: Mapping[str, str]
    first_option: int
    integers: frozenset[str] = frozenset()

    @property
    def defaults(self) -> tuple[Candidate, ...]:
        """What competes with the first one as it is asked for: the host with other threads, and backends."""
        return self.found[1 : self.first_option]

    @property
    def others(self) -> tuple[Candidate, ...]:
        """What follows the defaults."""
        return self.found[self.first_option :]

    def has_integers(self, candidate: Candidate) -> bool:
        """Whether a candidate may compute in integers."""
        return not candidate.high and any(name.partition(":")[0] in self.integers for name in candidate.backends)


def candidates_of(
    registry: Registry,
    backends: Sequence[str | BackendChoice] = (),
    threads: Sequence[int] = (0,),
    offers: Mapping[str, str] | None = None,
) -> CandidateSet:
    """Return the candidates of every backend that runs where candidates are tried, or of `backends` alone.

    A backend competes with its default options, with everything high, with every other value of one option at a time,
    and with all values of options that interact by its file, unless that changes nothing. A backend that is named with
    options has only these.

    Args:
        registry: The registry with the installed backends.
        backends: Names of backends, with options or without; all installed ones if empty.
        threads: Thread counts to try; 0 for the engine's own choice.
        offers: Why engines are not available on the machines that try candidates, by name, empty for those that are;
            None for this machine.

    Raises:
        UsageError: A thread count is negative, or a backend that is named does not exist.
        DovetailError: A backend that is named cannot run here.
    """
    if not threads or any(count < 0 for count in threads):
        raise UsageError(f"--threads {','.join(map(str, threads))}: numbers from 0 are expected")
    host = load_chosen(registry, BackendChoice(HOST))
    absent: dict[str, str] = {}
    integers: set[str] = set()
    ranked = [(-1, Candidate(HOST, (HOST,), why="the source model as it is"))]
    for choice in map(BackendChoice.parse, backends or [name for name in registry.backend if name != HOST]):
        if choice.name == HOST:
            continue
        try:
            backend = load_chosen(registry, choice)
            engines = own_engines(backend, host)
            there = engines_on_this_machine(registry, engines) if offers is None else offers
            why = why_not_tried(backend, engines, there)
        except DovetailError as error:
            if backends:
                raise
            why = error.message
        if why and backends:
            where = "here" if offers is None else "on the workers"
            raise DovetailError(f"backend '{choice}' cannot run {where}: {why}", "`dovetail backends` lists what can")
        if why:
            absent[choice.name] = why
        else:
            ranked += _of_backend(choice, backend, registry)
            integers |= {choice.name} if backend.has_integers else set()
    # Defaults come first, and options last, because a budget may end anywhere.
    ranked.sort(key=lambda pair: pair[0])
    found = list({candidate.name: candidate for _, candidate in ranked}.values())
    defaults = len({candidate.name for rank, candidate in ranked if rank < _OPTIONS}) * len(dict.fromkeys(threads))
    counted = [
        replace(candidate, name=f"{candidate.name} @{count}" if count else candidate.name, threads=count)
        for candidate in found
        for count in dict.fromkeys(threads)
    ]
    return CandidateSet(tuple(counted), absent, defaults, frozenset(integers))


def combinations_of(
    registry: Registry, fastest: Candidate, others: Sequence[Candidate], gaining: Sequence[Candidate] = ()
) -> list[Candidate]:
    """Return the fastest candidate with more options: all that gain alone, and then one more each.

    Which options gain together is not known from each of them alone, and all pairs would be too many.

    Args:
        registry: The registry with the installed backends.
        fastest: The fastest candidate so far; without an option, there is nothing to combine.
        others: What was tried, the fastest first; options are those that others of its backend have alone.
        gaining: Those of `others` that are faster than without their option.
    """
    choice = BackendChoice.parse(fastest.backends[0])
    if not choice.options or fastest.high or fastest.pins or fastest.margin:
        return []
    alone: dict[Candidate, Mapping[str, str]] = {}
    for other in others:
        more = BackendChoice.parse(other.backends[0])
        is_other = len(more.options) == 1 and not more.options.keys() & choice.options.keys()
        if more.name == choice.name and is_other and not other.pins and not other.high:
            alone |= {other: more.options} if other.threads == fastest.threads else {}
    together: dict[str, str] = {}
    for other in gaining:
        for option, value in alone.get(other, {}).items():
            together.setdefault(option, value)  # of two values the faster one
    why = f"{fastest.name} is the fastest so far, and may gain by "
    found: list[tuple[Mapping[str, str], str]] = []
    if len(together) > 1:
        found.append((together, f"{why}all other options that gain alone"))
    found += [(options, f"{why}another option") for options in alone.values()]
    combined: dict[str, Candidate] = {}
    for options, why in found:
        both = BackendChoice(choice.name, {**choice.options, **options})
        if _is_used(both, registry):
            count = f" @{fastest.threads}" if fastest.threads else ""
            combined[str(both)] = replace(fastest, name=f"{both}{count}", backends=(str(both),), why=why)
    return list(combined.values())


def why_not_tried(backend: Backend, engines: Sequence[str], offers: Mapping[str, str]) -> str:
    """Return why a backend does not compete on a machine; empty if it does.

    Args:
        backend: The backend.
        engines: Its own engines.
        offers: See `candidates_of`.
    """
    if any(offers.get(name) == "" for name in engines):
        return ""
    reasons = [f"{name}: {offers.get(name, 'it is not installed')}" for name in engines]
    return "; ".join(reasons) or f"no engine here runs on the device '{backend.device}'"


def own_engines(backend: Backend, host: Backend) -> tuple[str, ...]:
    """Return the engines of a backend whose times are those of its device.

    An engine of the host that stands in for another device checks results, and says nothing about that device's speed.
    """
    stand_ins = host.engines if backend.device != host.device else ()
    return tuple(name for name in backend.engines if name not in stand_ins)


def needs_of(registry: Registry, backends: Sequence[str | BackendChoice]) -> dict[str, tuple[str, ...]]:
    """Return the engines of backends that are named, by backend; of those without any, candidates say why."""
    host = load_chosen(registry, BackendChoice(HOST))
    choices = [choice for choice in map(BackendChoice.parse, backends) if choice.name in registry.backend]
    found = {choice.name: own_engines(load_chosen(registry, choice), host) for choice in choices}
    return {name: engines for name, engines in found.items() if engines and name != HOST}


_ANY = "any"
"""First value of an option about the device, such as its chip: here there is one device, and nothing to choose."""


def _of_backend(choice: BackendChoice, backend: Backend, registry: Registry) -> Iterator[tuple[int, Candidate]]:
    """Yield the candidates of a backend, each with its rank among those of all backends.

    Floats come first, which take the least time to compile. What a backend for integers does with floats comes last.
    """
    low, high, option_of_floats = (2, _LAST, _LAST) if backend.has_integers else (0, 1, _OPTIONS)
    yield low, Candidate(str(choice), (str(choice),), why="the backend as it is asked for")
    if backend.low and backend.low != backend.high:
        why = "the backend in the source's own types"
        yield high, Candidate(f"{choice} high", (str(choice),), high=(EVERY_NODE,), why=why)
    if choice.options:
        return
    for options in _options_of(backend):
        other = BackendChoice(choice.name, options)
        if len(options) == 1 or _is_used(other, registry):
            text, why = str(other), f"the backend with another {' and another '.join(options)}"
            yield option_of_floats if POLICIES in options else _OPTIONS, Candidate(text, (text,), why=why)


def _options_of(backend: Backend) -> Iterator[dict[str, str]]:
    """Yield every other value of one option at a time, and of options that interact together, once each was alone."""
    others = {
        option: [value for value in values if value != backend.chosen.get(option)]
        for option, values in backend.options.items()
        if option not in backend.unused_options and values[0] != _ANY
    }
    groups = [group for one in backend.interacting if (group := [option for option in others if option in one])]
    for option, values in others.items():
        yield from ({option: value} for value in values)
        for group in groups:
            if option == group[-1]:
                yield from _together({each: others[each] for each in group})


def _together(others: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield other values of two options and more."""
    for number in range(2, len(others) + 1):
        for some in itertools.combinations(others, number):
            for values in itertools.product(*(others[option] for option in some)):
                yield dict(zip(some, values))


def _is_used(choice: BackendChoice, registry: Registry) -> bool:
    """Check whether each of some options has an effect beside the others."""
    return not load_chosen(registry, choice).unused_options & choice.options.keys()
