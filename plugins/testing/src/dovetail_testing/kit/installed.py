"""Check of an installed backend: targets, limits from both sides, and the engine against a reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import dovetail
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import BackendChoice
from dovetail.plugin.loading import load_chosen, problem_of
from dovetail.text import did_you_mean, pluralize
from dovetail_schemas.backend import FileBackend
from dovetail_schemas.integer_nodes import integers_by_accident

from dovetail_testing.case import Case, CaseMeasurement, PreparedCase
from dovetail_testing.common_reason import CommonReason
from dovetail_testing.kit.limit_models import LimitFound, LimitModels
from dovetail_testing.kit.targets import Target, targets_of
from dovetail_testing.list_files import lists
from dovetail_testing.lone_nodes import requirements
from dovetail_testing.recording import Recording, fingerprint
from dovetail_testing.running import measure, references_of
from dovetail_testing.time_limit import OutOfTime, TimeLimit
from dovetail_testing.verdicts import verdict

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.plugin import PluginSet

    from dovetail_testing.kit.samples import NodeSample


Progress = Callable[[str, int, int], None]
"""Called with what is checked, how much of it is done, and how much there is."""

_ROUNDING = {"float16": 4e-3, "bfloat16": 3e-2, "int16": 4e-3, "int8": 0.1, "uint8": 0.1}
_OTHERWISE = 1e-4  # of the largest value, where a backend does not round


@dataclass
class InstalledCheck:
    """The findings about a distribution and its backends.

    Attributes:
        name: The requested name.
        distribution: The distribution, with its version.
        targets: Its targets.
        limits: The limits of its backend files.
        measured: Nodes at the limits, and one of each operator, on the backend and on a reference.
        problems: Problems that must be repaired.
        notes: Parts that could not be checked.
        resumed: How many of the measured nodes an earlier check measured.
        unfinished: What was left out because of the time limit or an interruption; empty if nothing was.
    """

    name: str
    distribution: str = ""
    targets: list[Target] = field(default_factory=list)
    limits: list[LimitFound] = field(default_factory=list)
    measured: list[CaseMeasurement] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    resumed: int = 0
    unfinished: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.name,
            "distribution": self.distribution,
            "targets": [target._asdict() for target in self.targets],
            "limits": [
                {"operator": one.operator, "limit": one.limit, "source": one.source, "kept": one.value,
                 "accepted": one.kept is not None, "refused": one.broken is not None}
                for one in self.limits
            ],
            "measured": [one.as_dict() for one in self.measured],
            "problems": self.problems,
            "notes": self.notes,
            "resumed": self.resumed,
            "unfinished": self.unfinished,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """Return the report, one line for each part, then notes and problems."""
        kinds = dict.fromkeys(target.kind for target in self.targets)
        loaded = ", ".join(f"{sum(t.kind == kind for t in self.targets)} {kind}" for kind in kinds)
        lines = [f"{self.name}  ({self.distribution})", f"    targets: {loaded or 'none'}"]
        if self.limits:
            both = sum(one.both for one in self.limits)
            lines.append(f"    limits: nodes on both sides of {both} of {len(self.limits)}")
        compared = [one for one in self.measured if one.outcome == "compared"]
        if compared:
            worst = max(compared, key=lambda one: one.share)
            exact = sum(one.exact for one in compared)
            lines.append(
                f"    engine and reference: {pluralize(len(compared), 'model')}, {exact} exact, "
                f"largest difference {worst.share:.2g} of the largest value ({worst.name})"
            )
        resumed = [f"{self.resumed} of {pluralize(len(self.measured), 'model')} passed before"] if self.resumed else []
        notes = [*self.notes, *resumed, *([f"unfinished: {self.unfinished}"] if self.unfinished else [])]
        return [*lines, *(f"    note: {text}" for text in notes), *(f"    problem: {p}" for p in self.problems)]


class _Watch:
    """Reports progress, stops at the time limit, and knows what passed before.

    Args:
        progress: See `check_installed`.
        limit: The time limit.
        passed: The measurements of nodes that passed with the same versions.
    """

    def __init__(self, progress: Progress | None, limit: TimeLimit, passed: Recording):
        self._progress, self.limit, self.passed = progress, limit, passed
        self.at = "targets"

    def __call__(self, what: str, done: int, total: int) -> None:
        self.at = f"{what}, {done} of {total}"
        if self._progress is not None:
            self._progress(what, done, total)
        self.limit.check()


def check_installed(
    name: str,
    plugins: PluginSet | None = None,
    progress: Progress | None = None,
    *,
    time_limit: float | None = None,
    resume: Path | None = None,
    interrupted: Callable[[InstalledCheck], None] | None = None,
) -> InstalledCheck:
    """Check a distribution and its backends: `dovetail check --installed NAME`.

    Every target is loaded and checked against the contract of its kind. For each limit in a backend's file, nodes on
    both sides are generated; accepted nodes run on the backend and on a reference.

    Args:
        name: A backend, a plugin or a distribution.
        plugins: The plugins; all installed ones by default.
        progress: Called with (what, done, total).
        time_limit: Time limit in seconds; returns what was found until then. A tool that is working is ended.
        resume: A file that keeps the nodes that pass. Those in it are not tried again, unless a version, a backend's
            file or an option changed.
        interrupted: Called with what was found if the user interrupts the check, before the interruption is raised.

    Raises:
        UsageError: Nothing of that name is installed.
        DovetailError: The file to resume from cannot be read or written, or is something else.
    """
    plugins = plugins or dovetail.load_plugins()
    owner, backends = _owner(name, plugins)
    version = next((record.version for record in plugins.plugins if record.distribution == owner), "")
    found = InstalledCheck(name, f"{owner} {version}".strip())
    made_with = {one: fingerprint(BackendChoice(one), plugins, {}) for one in backends} if resume is not None else {}
    watch = _Watch(progress, TimeLimit(time_limit), Recording(resume, made_with))
    try:
        with watch.limit.ends_tools():
            _check(owner, backends, found, plugins, watch)
    except OutOfTime:
        found.unfinished = f"the time limit of {time_limit:g} s was reached at {watch.at}"
    except KeyboardInterrupt:
        found.unfinished = f"interrupted at {watch.at}"
        if interrupted is not None:
            interrupted(found)
        raise
    return found


def _check(owner: str, backends: Iterable[str], found: InstalledCheck, plugins: PluginSet, watch: _Watch) -> None:
    for record in plugins.broken:
        if record.distribution == owner:
            found.problems.append(str(record))
    for kind, entry in plugins.registry.withdrawn:
        if entry.owner == owner and (problem := problem_of(entry)):
            found.problems.append(f"{kind} {entry.name}: {problem}")
    found.targets = list(targets_of(owner, plugins))
    found.problems += [f"{target.kind} {target.name}: {target.problem}" for target in found.targets if target.problem]
    bad = {target.name for target in found.targets if target.kind == "backend" and target.problem}
    for backend in backends:
        if backend not in bad:
            _check_backend(backend, found, plugins, watch)


def backends_of(name: str, plugins: PluginSet) -> list[str]:
    """Return the backends that the check of a backend, a plugin or a distribution is about.

    Raises:
        UsageError: Nothing of that name is installed.
    """
    return _owner(name, plugins)[1]


def _owner(name: str, plugins: PluginSet) -> tuple[str, list[str]]:
    """Return the distribution that a name belongs to, and the backends to check."""
    table = plugins.registry.backend
    if name in table:
        return table.entry(name).owner, [name]
    owners = {record.name: record.distribution for record in plugins.plugins}
    owner = owners.get(name, name if name in owners.values() else "")
    if not owner:
        known = [*table, *owners, *owners.values()]
        raise UsageError(
            f"no backend, plugin or distribution '{name}' is installed{did_you_mean(name, known)}",
            "`dovetail plugins` lists them; a backend file is checked with `dovetail check FILE`",
        )
    return owner, [entry.name for entry in table.entries if entry.owner == owner]


def _check_backend(name: str, found: InstalledCheck, plugins: PluginSet, watch: _Watch) -> None:
    backend = load_chosen(plugins.registry, BackendChoice(name))
    if not isinstance(backend, FileBackend):
        found.notes.append(f"{name} is a Python class: it has no limits to make nodes from")
        return
    models = LimitModels(backend, plugins)
    operators = models.operators()
    samples: list[tuple[str, NodeSample]] = []
    without: list[str] = []
    for done, operator in enumerate(operators):
        watch(f"limits of {operator}", done, len(operators))
        limits = []
        for limit in models.limits(operator):
            limits.append(limit)
            found.limits.append(limit)
            watch.limit.check()
        plain = models.plain(operator)
        kept = [(f"{one.operator} {one.limit}", one.kept) for one in limits if one.kept is not None]
        samples += kept or ([(operator, plain)] if plain is not None else [])
        if plain is None and not kept:
            without.append(operator)
    if text := integers_by_accident(backend):
        found.notes.append(text)
    if left := requirements(backend):
        found.notes.append(f"nodes were tried alone, which its file leaves to others ({'; '.join(left)})")
    if without:
        found.notes.append(f"no node of {', '.join(without)} was made from onnx's node tests")
    found.notes += [
        f"{one.source}: {one.operator}: no node {'is accepted at' if one.kept is None else 'is refused by'} {one.limit}"
        for one in found.limits
        if not one.both
    ]
    _measure(name, samples, found, plugins, watch)


def _measure(
    name: str,
    samples: list[tuple[str, NodeSample]],
    found: InstalledCheck,
    plugins: PluginSet,
    watch: _Watch,
) -> None:
    """Run samples on the backend and by a reference."""
    (info,) = [info for info in dovetail.backends(plugins) if info.name == name]
    if not any(ok for _, ok, _ in info.engines):
        why = "; ".join(f"{engine}: {reason}" for engine, _, reason in info.engines)
        found.notes.append(f"no engine of {name} runs here, so nothing was compared ({why})")
        return
    before, common = len(found.measured), CommonReason()
    expected, low = lists(name, plugins.registry), load_chosen(plugins.registry, BackendChoice(name)).low or ""
    try:
        for done, (label, sample) in enumerate(samples):
            watch(f"{label} on engine and reference", done, len(samples))
            case = Case("models", label, sample.op_type, partial(_work, sample))
            known = watch.passed.get(name, case.key)
            measured = known or measure(case, name, plugins)
            watch.limit.check()  # else its result would be that of a tool that was ended
            found.measured.append(measured)
            found.resumed += known is not None
            judged = verdict(measured, expected)
            # Lists say "exact" of onnx's own tests; other numbers may fall on the other side of a rounding.
            rounded = measured.outcome == "compared" and not measured.problem
            if judged.status == "failed" and not (rounded and measured.share <= _ROUNDING.get(low, _OTHERWISE)):
                found.problems.append(f"{label} on {name}: {measured.line()}")
            elif known is None and measured.outcome == "compared":
                watch.passed.add(measured)
            if common.add(sample.op_type, measured.refusal if measured.outcome == "host" else ""):
                if left := len(samples) - done - 1:
                    found.notes.append(f"{pluralize(left, 'other node')} were not tried: the reason is common to all")
                break
    finally:  # what the time limit cuts off is not silent about what was tried
        _say_what_is_left(name, found.measured[before:], found)


def _say_what_is_left(name: str, measured: Sequence[CaseMeasurement], found: InstalledCheck) -> None:
    """Note the nodes that ran on the host instead, with the reasons; it is a problem if all did."""
    hosted = [one for one in measured if one.outcome == "host"]
    if hosted and len(hosted) == len(measured):
        reasons = dict.fromkeys(reason for one in hosted for reason in one.reasons)
        why = next(iter(reasons), "its strategy claims none")
        found.problems.append(f"none of the {len(hosted)} nodes that the file of {name} accepts runs there: {why}")
        return
    left: dict[str, list[str]] = {}
    for one in hosted:
        why = next(iter(one.reasons), f"the strategy of {name} claims no such node alone")
        left.setdefault(why, []).append(one.name)
    found.notes += [f"left to the host: {', '.join(names)}: {why}" for why, names in left.items()]


def _work(sample: NodeSample, _: PluginSet) -> PreparedCase:
    proto = sample.proto()
    if proto is None:
        raise DovetailError("the sample is no valid model")
    return PreparedCase(proto, sample.feeds, {}, references_of(proto), proto)
