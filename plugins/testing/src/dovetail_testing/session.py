"""Run of the suite over several backends: selected cases, verdicts, and the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dovetail
from dovetail.errors import UsageError
from dovetail.passes import BackendChoice
from dovetail.plugin.loading import load_chosen, use_file

from dovetail_testing.case import SUITES, Case, CaseMeasurement
from dovetail_testing.list_files import Lists, check_backends, lists
from dovetail_testing.recording import Recording, fingerprint
from dovetail_testing.running import NARROW, measure
from dovetail_testing.suites import all_cases, sampled, shard_of
from dovetail_testing.table import BackendTable, page
from dovetail_testing.verdicts import CaseVerdict, rotten, text_to_add, verdict

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet


@dataclass(frozen=True)
class SuiteSettings:
    """Settings from pytest's options.

    Attributes:
        backends: The backends, each with options as after `--backend`.
        suites: The suites; all if empty.
        shard: Number and count of the shards.
        sample: Number of cases per suite; all if None.
        lists: List files of the user.
        resume: The file of results.
        models: A folder of models.
        narrow: Whether to compute as much as possible in low precision.
        options: Further command-line arguments, for the command on the page.
    """

    backends: tuple[str, ...]
    suites: tuple[str, ...] = ()
    shard: tuple[int, int] = (1, 1)
    sample: int | None = None
    lists: tuple[Path, ...] = ()
    resume: Path | None = None
    models: Path | None = None
    narrow: bool = False
    options: tuple[str, ...] = ()


@dataclass
class SuiteRun:
    """A run of the suite.

    Attributes:
        asked: The settings.
        plugins: The installed plugins.
        verdicts: The verdicts so far, by backend and key of the case.
        selected: Number of cases that pytest runs.

    Raises:
        DovetailError: A backend does not exist, or a file or an option is invalid.
    """

    asked: SuiteSettings
    plugins: PluginSet = field(default_factory=dovetail.load_plugins)
    verdicts: dict[tuple[str, str], CaseVerdict] = field(default_factory=dict)
    selected: int = 0

    def __post_init__(self) -> None:
        named = [use_file(self.plugins.registry, text) for text in self.asked.backends]
        self.choices = {str(choice): choice for choice in map(BackendChoice.parse, named)}
        suites = self.asked.suites or SUITES
        self.options: Mapping[str, Any] = NARROW if self.asked.narrow else {}
        for choice in self.choices.values():
            load_chosen(self.plugins.registry, choice)
        check_backends(self.asked.lists, {choice.name for choice in self.choices.values()})
        self.lists: dict[str, Lists] = {
            name: lists(choice.name, self.plugins.registry, self.asked.lists) for name, choice in self.choices.items()
        }
        self.known = all_cases(dict.fromkeys(suites), self.plugins, self.asked.models)
        self.warnings = [
            text for each in self.lists.values() for text in each.check_names(self.known, suites, self.plugins.registry)
        ]
        prints = {name: fingerprint(choice, self.plugins, self.options) for name, choice in self.choices.items()}
        self.recording = Recording(self.asked.resume, prints)

    @cached_property
    def cases(self) -> Sequence[Case]:
        """Cases of this run: the shard of the sample."""
        chosen: list[Case] = []
        for suite in dict.fromkeys(case.suite for case in self.known):
            found = [case for case in self.known if case.suite == suite]
            chosen += found if self.asked.sample is None else sampled(found, self.asked.sample)
        return shard_of(chosen, *self.asked.shard)

    def verdict(self, backend: str, case: Case) -> CaseVerdict:
        """Run a case on a backend unless its result is recorded, and judge the result."""
        measured = self.recording.get(backend, case.key)
        if measured is None and self.recording.ended_the_process(backend, case.key):
            blank = CaseMeasurement(backend, case.suite, case.name, case.operator, "error")
            measured = CaseMeasurement(**{**vars(blank), "problem": "the process ended twice while it ran"})
        if measured is None:
            self.recording.begin(backend, case.key)
            measured = measure(case, self.choices[backend], self.plugins, self.options)
            self.recording.add(measured)
        found = self.verdicts[backend, case.key] = verdict(measured, self.lists[backend])
        return found

    def to_add(self) -> dict[str, str]:
        """Return missing list entries as YAML, by backend."""
        found: dict[str, list[CaseMeasurement]] = {}
        for (backend, _), one in self.verdicts.items():
            if one.unlisted:
                found.setdefault(backend, []).append(one.measurement)
        return {backend: text_to_add(those) for backend, those in found.items()}

    def rotten(self) -> list[str]:
        """Return list entries that could be stricter."""
        texts = []
        for backend, known in self.lists.items():
            done = {key: one for (name, key), one in self.verdicts.items() if name == backend}
            covered: dict[int, int] = {}
            for case in self.known:
                entry = known.expectation(case.name, case.operator)
                if entry is not None and not (case.key in done and done[case.key].status == "host"):
                    covered[id(entry)] = covered.get(id(entry), 0) + 1
            texts += rotten(done.values(), covered)
        return list(dict.fromkeys(texts))

    def tables(self) -> list[BackendTable]:
        """Create a table for each backend, from this run and all recorded results."""
        keys = {case.key for case in self.known}
        found: dict[str, dict[str, CaseVerdict]] = {name: {} for name in self.choices}
        for measured in self.recording.results():
            if measured.backend in found and measured.key in keys:
                found[measured.backend][measured.key] = verdict(measured, self.lists[measured.backend])
        for (backend, key), one in self.verdicts.items():
            found[backend][key] = one
        return [
            BackendTable(name, self._engines(name), list(those.values()), self.lists[name].notes)
            for name, those in found.items()
        ]

    def page(self) -> str:
        """Return the page with the tables."""
        return page(self.tables(), self._command(), _versions(self.plugins))

    def _command(self) -> str:
        return " ".join(["pytest", *(f"--dovetail-backend {name}" for name in self.choices), *self.asked.options])

    def _engines(self, backend: str) -> str:
        info = next(one for one in dovetail.backends(self.plugins) if one.name == self.choices[backend].name)
        here = next((name for name, is_here, _ in info.engines if is_here), "")
        missing = [name for name, is_here, _ in info.engines if not is_here]
        if not here:
            return "No engine of it runs on the machine that made this table."
        stands_in = missing and info.engines[0][0] in missing
        return f"Executed by `{here}`{f' in place of `{missing[0]}`, which is not there' if stands_in else ''}."


def parse_shard(text: str) -> tuple[int, int]:
    """Parse number and count of a shard, such as `1/4`.

    Raises:
        UsageError: The text has another form.
    """
    number, slash, count = text.partition("/")
    if slash and number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count) <= 10_000:
        return int(number), int(count)
    raise UsageError(f"--dovetail-shard {text!r} is not of the form 1/4", "write which of how many shards, from 1")


def check_suites(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct suites of a command line.

    Raises:
        UsageError: A suite does not exist.
    """
    from dovetail.text import did_you_mean

    for name in names:
        if name not in SUITES:
            raise UsageError(f"there is no suite '{name}'{did_you_mean(name, SUITES)}", f"suites: {', '.join(SUITES)}")
    return tuple(dict.fromkeys(names))


def _versions(plugins: PluginSet) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"dovetail": dovetail.__version__}
    for name in ("onnx", "onnxruntime", "onnxruntime-gpu", "openvino"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
