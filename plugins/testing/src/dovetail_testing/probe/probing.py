"""Probes an engine: nodes of all operators, one change at a time, and the backend file that follows from them."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dovetail
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import BackendChoice
from dovetail.plugin import Emitter
from dovetail.plugin.loading import class_of, load_chosen, make_engine, use_file
from dovetail.text import did_you_mean, pluralize

from dovetail_testing.common_reason import CommonReason
from dovetail_testing.probe.cases import ProbeCase, TestedNodes
from dovetail_testing.probe.clauses import OperatorRule, learned
from dovetail_testing.probe.observing import NodeNames, NodeReader, Observation, Outcome
from dovetail_testing.probe.precision import computed_in, is_right
from dovetail_testing.probe.trials import KnownTrials, ProbeState, Trials
from dovetail_testing.probe.variations import Exploration, explored
from dovetail_testing.time_limit import OutOfTime, TimeLimit

if TYPE_CHECKING:
    from dovetail.plugin import Backend, Engine, PluginSet, Reads


Progress = Callable[[str, int, int], None]
"""Called with what is tried, how much of it is done, and how much there is."""

_TRYING = 0.95  # of a time limit; what is left is for the rules
_OWN_REFERENCE = "onnxruntime-cpu"
"""The engine that is itself a reference; it is compared with the other one first."""


@dataclass
class Probe:
    """What was measured of an engine.

    Attributes:
        engine: The engine.
        backend: The backend that it runs for; empty for an engine alone.
        chosen: The options of that backend.
        versions: The versions that outcomes depend on.
        reads: What the engine reads.
        precision: The precision in which it computes float32.
        rules: What was learned, by operator.
        tried: The number of nodes that were tried by this run.
        known: The number of all nodes.
        resumed: The number of outcomes of earlier runs.
        seconds: The time that it took.
        unfinished: Operators whose tests and variations were not all tried within the time limit. If it was reached
            among the tests, these are all, whether or not onnx has tests of them.
        open_right: How many nodes with open extents were right, and of how many.
        empty_right: The same for nodes with an extent of 0, which no limit of a file can name at any rank.
    """

    engine: str
    backend: str
    chosen: Mapping[str, str]
    versions: Mapping[str, str]
    reads: Reads
    precision: str = "float32"
    rules: dict[str, OperatorRule] = field(default_factory=dict)
    tried: int = 0
    known: int = 0
    resumed: int = 0
    seconds: float = 0.0
    unfinished: list[str] = field(default_factory=list)
    open_right: tuple[int, int] = (0, 0)
    empty_right: tuple[int, int] = (0, 0)

    @property
    def observations(self) -> list[Observation]:
        """All nodes that were tried."""
        return [each for rule in self.rules.values() for each in rule.observations]

    def line(self) -> str:
        """Return a one-line summary."""
        right = sum(each.right for each in self.observations)
        taken = sum(rule.is_taken for rule in self.rules.values())
        return (
            f"{self.engine} computes {right} of {pluralize(self.known, 'node')} "
            f"of {taken} of {pluralize(len(self.rules), 'operator')}, in {self.precision}"
        )


@dataclass
class _Found:
    """What is known of one operator while it is probed."""

    seen: list[tuple[ProbeCase, NodeNames, Outcome]] = field(default_factory=list)


def probe(
    target: str,
    *,
    plugins: PluginSet | None = None,
    state: str | Path | None = None,
    time_limit: float | TimeLimit | None = None,
    operators: Sequence[str] = (),
    against: str = "",
    elsewhere: str = "",
    progress: Progress | None = None,
) -> Probe:
    """Measure which nodes an engine computes.

    Models of one node are loaded and run on the engine in a process of its own: onnx's node tests, and what is made of
    them by changing one thing at a time.

    Args:
        target: A backend, with options as after `--backend`, whose first engine that is here is probed; or an engine.
        plugins: The plugins; all installed ones by default.
        state: The file with the outcomes, from which an interrupted probe resumes; None for none.
        time_limit: Time limit in seconds; the rest of the nodes is left out then. A node that is being tried is ended.
            A `TimeLimit` counts from its own beginning.
        operators: The operators to probe; by default all.
        against: A backend, or the file of one, whose claims are compared (see `dovetail_testing.probe.claims`).
        elsewhere: The engine, where it is on workers alone (`dovetail_testing.probe.parts`): their outcomes are in
            `state`, and nothing is tried here.
        progress: Called as nodes are tried.

    Raises:
        UsageError: There is no such backend, engine or operator.
        DovetailError: No engine is here, or the file of outcomes is something else.
    """
    began, limit = time.monotonic(), time_limit if isinstance(time_limit, TimeLimit) else TimeLimit(time_limit)
    plugins = plugins or dovetail.load_plugins()
    backend, engine = _target(target, plugins, elsewhere)
    name, chosen = engine.name, dict(backend.chosen) if backend is not None else {}
    found = Probe(name, backend.name if backend is not None else "", chosen, _versions(name, plugins), engine.reads)
    tests = TestedNodes(plugins, engine.reads.opset, operators)
    if elsewhere and state:
        kept = ProbeState.of_workers(Path(state))
    else:
        kept = ProbeState(Path(state) if state else None, {"engine": name, "options": chosen, **found.versions})
    references = ("onnx", "onnxruntime") if name == _OWN_REFERENCE else ("onnxruntime", "onnx")
    emitting = target if backend is not None and _emits(backend, engine, plugins) else ""
    kind = KnownTrials if elsewhere else Trials
    with kind(name, chosen, kept, references, emitting, limit.end(_TRYING)) as trials:
        # Without a file to compare, the verdicts of the probed backend say which nodes it should compute.
        other = (
            load_chosen(plugins.registry, BackendChoice.parse(use_file(plugins.registry, against)))
            if against
            else backend
        )
        reader = NodeReader(plugins, _facts(name, plugins), other)
        with limit.ends_tools(_TRYING):
            _Run(tests, trials, reader, progress, limit, operators).go(found)
    if isinstance(trials, KnownTrials):
        found.unfinished = sorted({*found.unfinished, *trials.missing})
    found.tried, found.resumed, found.seconds = trials.tried, kept.resumed, time.monotonic() - began
    return found


@dataclass
class _Run:
    """One run over all operators."""

    tests: TestedNodes
    trials: Trials
    reader: NodeReader
    progress: Progress | None
    limit: TimeLimit
    operators: Sequence[str]

    def go(self, found: Probe) -> None:
        """Try the tests, then variations of what the engine computes, operator by operator in turn."""
        known: dict[str, _Found] = {}
        unfinished = set(self.operators or self.tests.known)
        with suppress(OutOfTime):
            if self.trials.is_here:
                self.trials.start()
                self._check_common_reason()
            self._try_tests(known)
            unfinished = set(known)
        found.precision = computed_in(outcome for each in known.values() for _, _, outcome in each.seen)
        with suppress(OutOfTime):
            self._try_variations(known, unfinished, found.precision)
        found.unfinished = sorted(unfinished)
        self._learn(known, found)

    def _check_common_reason(self) -> None:
        """Try a node of a few operators that the compared file accepts. Outcomes are not kept: the user acts on them.

        Raises:
            DovetailError: All are refused for one reason, such as a tool that is not installed.
        """
        common, tried = CommonReason(), set[str]()
        for case in self._cases() if self.reader.against is not None else ():
            names = None if case.operator in tried else self.reader.names_of(case.proto)
            if names is None or names.refusal != "":
                continue
            outcome = self.trials.tried_once(case)
            if not outcome.valid:
                continue
            if common.add(case.operator, outcome.reason):
                refused = ", ".join(sorted(common.operators))
                why = f"{self.trials.engine}: nodes of {refused} are refused for one reason: {common.text}"
                raise DovetailError(why)
            if not common.text:
                return
            tried.add(case.operator)

    def _try_tests(self, known: dict[str, _Found]) -> None:
        for case in self._cases():
            self._try(case, known.setdefault(case.operator, _Found()))

    def _cases(self) -> Iterator[ProbeCase]:
        """Yield the tests until the time limit."""
        for done, cases in enumerate(self.tests):
            self._say("parts of the tests", done, len(self.tests))
            self.limit.check(_TRYING)
            for case in cases:
                yield case
                self.limit.check(_TRYING)

    def _try_variations(self, known: Mapping[str, _Found], unfinished: set[str], precision: str) -> None:
        """Try variations; the operators whose variations are all tried leave `unfinished`."""
        explorations = {operator: self._explore(operator, each, precision) for operator, each in known.items()}
        # The operator that took least so far is next, so that slow ones do not take the time of all others.
        waiting = [(0.0, number, operator) for number, operator in enumerate(known)]
        while waiting:
            self.limit.check(_TRYING)
            spent, number, operator = waiting[0]
            began = time.monotonic()
            if next(explorations[operator], None) is not None:
                heapq.heapreplace(waiting, (spent + time.monotonic() - began, number, operator))
            else:
                heapq.heappop(waiting)
                unfinished.remove(operator)
            self._say("variations of operators", len(known) - len(waiting), len(known))

    def _learn(self, known: Mapping[str, _Found], found: Probe) -> None:
        """Learn the rule of each operator from the nodes that were tried."""
        self._say("rules of operators", 0, len(known))
        for operator, each in known.items():
            seen = observations_of(each.seen, found.precision)
            closed = [one for one in seen if not one.names.is_open and (one.right or not one.names.is_empty)]
            if closed:
                found.rules[operator] = learned(operator, closed, self.limit.end())
            opened = [one for one in seen if one.names.is_open]
            right, of = found.open_right
            found.open_right = right + sum(one.right for one in opened), of + len(opened)
            empty = [one for one in seen if one.names.is_empty]
            right, of = found.empty_right
            found.empty_right = right + sum(one.right for one in empty), of + len(empty)
            found.known += len(seen)

    def _explore(self, operator: str, each: _Found, precision: str) -> Iterator[bool]:
        """Run an exploration, one node for each value that is asked for."""
        right = [case for case, _, outcome in each.seen if is_right(outcome, precision)]
        exploration: Exploration = explored(operator, right)
        answer: bool | None = None
        with suppress(StopIteration):
            case = next(exploration)
            while True:
                outcome = self._try(case, each)
                answer = None if outcome is None else is_right(outcome, precision)
                yield True
                case = exploration.send(answer)

    def _try(self, case: ProbeCase, each: _Found) -> Outcome | None:
        names = self.reader.names_of(case.proto)
        if names is None:
            return None
        outcome = self.trials.outcome(case)
        if not outcome.valid:
            return None
        each.seen.append((case, names, outcome))
        return outcome

    def _say(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)


def observations_of(seen: Sequence[tuple[ProbeCase, NodeNames, Outcome]], precision: str) -> list[Observation]:
    """Return what was observed of the nodes of an operator.

    A node with small integers is not right if it is wrong at the ends of their types: its names are the same.
    """

    def right(case: ProbeCase, outcome: Outcome) -> bool:
        integers = all(name.startswith(("int", "uint", "bool")) for name in outcome.types)
        exact = outcome.exact or not (case.at_ends and integers)
        return exact and is_right(outcome, precision)

    wrong = [names for case, names, outcome in seen if case.at_ends and not right(case, outcome)]
    return [
        Observation(case.label, names, outcome, names not in wrong and right(case, outcome), case.weight)
        for case, names, outcome in seen
    ]


def engines_of_target(target: str, plugins: PluginSet) -> tuple[str, tuple[str, ...]]:
    """Return the name of a backend or an engine that is probed, and its engines in order of preference.

    Raises:
        UsageError: There is neither a backend nor an engine of this name.
    """
    if target in plugins.registry.engine:
        return target, (target,)
    backend = _backend_of(target, plugins)
    return backend.name, tuple(backend.engines)


def _backend_of(target: str, plugins: PluginSet) -> Backend:
    registry = plugins.registry
    choice = BackendChoice.parse(use_file(registry, target))
    if choice.name not in registry.backend:
        known = [*registry.backend, *registry.engine]
        raise UsageError(
            f"there is no backend or engine '{target}'{did_you_mean(target, known)}",
            f"engines: {', '.join(registry.engine)}; `dovetail backends` lists the backends",
        )
    return load_chosen(registry, choice)


def _target(target: str, plugins: PluginSet, elsewhere: str = "") -> tuple[Backend | None, Engine]:
    """Return the backend, if one is named, and the engine.

    Args:
        target: Their name.
        plugins: The plugins.
        elsewhere: The engine, where it is not on this machine.

    Raises:
        UsageError: There is neither a backend nor an engine of this name.
        DovetailError: The engine is not here.
    """
    registry = plugins.registry
    if target in registry.engine:
        engine = make_engine(registry, target)
        ok, why = engine.available()
        if not ok and not elsewhere:
            raise DovetailError(f"the engine {target} is not available: {why}")
        return None, engine
    backend = _backend_of(target, plugins)
    if elsewhere:
        return backend, make_engine(registry, elsewhere)
    reasons = []
    for name in backend.engines:
        engine = make_engine(registry, name)
        ok, why = engine.available()
        if ok:
            return backend, engine
        reasons.append(f"{name}: {why}")
    raise DovetailError(f"no engine of {backend.name} is available ({'; '.join(reasons)})")


def _emits(backend: Backend, engine: Engine, plugins: PluginSet) -> bool:
    """Check whether the engine loads what emitters of the backend compile from regions."""
    emitters = (class_of(plugins.registry.emitter[name], name, Emitter) for name in backend.artifacts)
    return engine.loads_artifacts and any(not emitter.whole for emitter in emitters)


def _facts(engine: str, plugins: PluginSet) -> dict[str, Any]:
    """Return the facts of the distribution that brings the engine."""
    registry = plugins.registry
    owner = registry.engine.entry(engine).owner
    return {name: registry.fact[name] for name in registry.fact if registry.fact.entry(name).owner == owner}


def _versions(engine: str, plugins: PluginSet) -> dict[str, str]:
    """Return the versions that outcomes depend on: of the engine's distribution and what it requires, and of onnx."""
    import re
    from importlib import metadata

    owner = plugins.registry.engine.entry(engine).owner
    names = {owner, "onnx", "onnxruntime", "numpy"}
    with suppress(metadata.PackageNotFoundError):
        names |= {re.split(r"[^\w.-]", text)[0] for text in metadata.requires(owner) or ()}
    found = {}
    for name in sorted(names):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
