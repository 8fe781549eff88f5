"""Pytest plugin: `pytest --dovetail-backend NAME` runs the conformance suite.

Every pytest run with this distribution installed loads the plugin, so imports are deferred.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import pytest
from dovetail.errors import DovetailError, UsageError

if TYPE_CHECKING:
    from dovetail_testing.case import Case
    from dovetail_testing.session import SuiteRun
    from dovetail_testing.verdicts import CaseVerdict


_RUN = pytest.StashKey["SuiteRun"]()
Style: TypeAlias = "Literal['long', 'short', 'line', 'no', 'native', 'value', 'auto']"
_PASSING = ("exact", "relaxed", "ran")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("dovetail", "conformance of Dovetail's backends")
    group.addoption(
        "--dovetail-backend", action="append", default=[], metavar="NAME",
        help="run the conformance suite on this backend (NAME or NAME:key=value,...); may be given several times",
    )  # fmt: skip
    group.addoption(
        "--dovetail-suite", action="append", default=[], metavar="nodes|operators|models",
        help="a part of the suite: onnx's node tests, operators of installed YAML files, models; may be given several "
        "times (default: all)",
    )  # fmt: skip
    group.addoption("--dovetail-shard", default="1/1", metavar="1/4", help="run one of several shards")
    group.addoption(
        "--dovetail-sample", type=int, default=None, metavar="N",
        help="run N cases of each suite, of as many operators as can be",
    )  # fmt: skip
    group.addoption(
        "--dovetail-lists", action="append", default=[], type=Path, metavar="FILE",
        help="lists of what is exact, relaxed, run only or fails, beside those that the backend brings",
    )  # fmt: skip
    group.addoption(
        "--dovetail-models", type=Path, default=None, metavar="FOLDER",
        help="a folder of NAME.onnx, each with NAME.npz, for the suite `models`",
    )  # fmt: skip
    group.addoption(
        "--dovetail-resume", type=Path, default=None, metavar="FILE",
        help="append results to this file, and do not run again what is in there",
    )  # fmt: skip
    group.addoption(
        "--dovetail-table", type=Path, default=None, metavar="FILE", help="write a table of what passes, as Markdown"
    )
    group.addoption(
        "--dovetail-add-to", type=Path, default=None, metavar="FILE",
        help="add what is on no list to this file of lists, which keeps everything that is in it",
    )  # fmt: skip
    group.addoption(
        "--dovetail-narrow", action="store_true",
        help="compute as much as can be in the low precision, inputs and outputs included",
    )  # fmt: skip


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Collect only the suite if the command line names no test files."""
    if not config.getoption("dovetail_backend"):
        _refuse_alone(config)
    elif config.args_source is not config.ArgsSource.ARGS:
        config.args = []


def _refuse_alone(config: pytest.Config) -> None:
    """Check that no option is given that requires a backend.

    Raises:
        pytest.UsageError: Such an option is given.
    """
    for name, default in _DEFAULTS.items():
        if config.getoption(f"dovetail_{name}") != default:
            raise pytest.UsageError(f"--dovetail-{name.replace('_', '-')} needs --dovetail-backend NAME")


_DEFAULTS: dict[str, object] = {
    **dict.fromkeys(("sample", "models", "resume", "table", "add_to"), None),
    "suite": [],
    "lists": [],
    "shard": "1/1",
    "narrow": False,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Append the cases of the suite; `-k` and `--deselect` see them like other tests."""
    if not config.getoption("dovetail_backend"):
        return
    try:
        run = config.stash[_RUN] = _run_of(config)
    except DovetailError as error:
        raise pytest.UsageError(str(error)) from error
    for backend in run.choices:
        suite = ConformanceSuite.from_parent(session, name=backend, nodeid=f"dovetail::{backend}")
        suite.run = run
        cases = list(suite.collect())
        # Let the reporter count them.
        config.hook.pytest_collectreport(report=pytest.CollectReport(suite.nodeid, "passed", None, [*cases]))
        items.extend(cases)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Record how many cases remain to run."""
    run = session.config.stash.get(_RUN, None)
    if run is not None:
        run.selected = sum(isinstance(item, ConformanceItem) for item in session.items)


def _run_of(config: pytest.Config) -> SuiteRun:
    """Create the run from the options.

    Raises:
        DovetailError: An option or a file is invalid.
    """
    from dovetail_testing.session import SuiteRun, SuiteSettings, check_suites, parse_shard

    get = config.getoption
    sample = get("dovetail_sample")
    if sample is not None and sample < 1:
        raise UsageError(f"--dovetail-sample {sample} is no number of cases", "give a number from 1")
    table = get("dovetail_table")
    if table is not None and table.is_dir():
        raise UsageError(f"--dovetail-table {table} is a folder", "name a file")
    if get("dovetail_add_to") is not None and len(get("dovetail_backend")) > 1:
        raise UsageError("--dovetail-add-to is for the lists of one backend", "run the backends one after the other")
    return SuiteRun(
        SuiteSettings(
            tuple(dict.fromkeys(get("dovetail_backend"))),
            check_suites(get("dovetail_suite")),
            parse_shard(get("dovetail_shard")),
            sample,
            tuple(get("dovetail_lists")),
            get("dovetail_resume"),
            get("dovetail_models"),
            get("dovetail_narrow"),
            _shown_options(config),
        )
    )


def _shown_options(config: pytest.Config) -> tuple[str, ...]:
    """Return the options that affect the content of a table."""
    get = config.getoption
    pairs = [("--dovetail-suite", name) for name in get("dovetail_suite")]
    pairs += [("--dovetail-sample", get("dovetail_sample"))] if get("dovetail_sample") else []
    pairs += [("--dovetail-shard", get("dovetail_shard"))] if get("dovetail_shard") != _DEFAULTS["shard"] else []
    pairs += [("--dovetail-lists", path) for path in get("dovetail_lists")]
    pairs += [("--dovetail-models", get("dovetail_models"))] if get("dovetail_models") else []
    pairs += [("--dovetail-table", get("dovetail_table"))] if get("dovetail_table") else []
    words = ("--dovetail-narrow",) if get("dovetail_narrow") else ()
    return (*(f"{name} {shlex.quote(str(value))}" for name, value in pairs), *words)


class ConformanceSuite(pytest.Collector):
    """The suite on one backend.

    Attributes:
        run: The run that contains it.
    """

    run: SuiteRun

    def collect(self) -> Iterator[ConformanceItem]:
        """Yield its cases."""
        for case in self.run.cases:
            item = ConformanceItem.from_parent(self, name=case.name, nodeid=f"{self.nodeid}::{case.suite}::{case.name}")
            item.case = case
            yield item


class ConformanceItem(pytest.Item):
    """One case on one backend.

    Attributes:
        case: The case.
    """

    case: Case
    parent: ConformanceSuite

    def runtest(self) -> None:
        """Run the case, and skip, fail or expect a failure according to the lists."""
        found = self.parent.run.verdict(self.parent.name, self.case)
        self.user_properties.append(("dovetail", found.status))
        if found.status in ("host", "skipped"):
            pytest.skip(found.text)
        if found.status == "known":
            pytest.xfail(found.text)
        if found.status not in _PASSING:
            raise NotAsListed(found)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Style | None = None) -> str:
        """Return only the reason, because the stack trace is inside the suite."""
        if isinstance(excinfo.value, (NotAsListed, DovetailError)):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo, style))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the location and name for reports."""
        return self.path, None, f"{self.parent.name} {self.case.key}"


class NotAsListed(Exception):
    """Raised if the result of a case contradicts the lists."""

    def __init__(self, found: CaseVerdict):
        super().__init__(found.text)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Report the backends."""
    backends = config.getoption("dovetail_backend")
    return f"dovetail: conformance of {', '.join(backends)}" if backends else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a line per backend, missing and too lenient list entries, and write the table."""
    run = config.stash.get(_RUN, None)
    if run is None:
        return
    out = terminalreporter
    out.section("conformance of backends")
    if run.recording.outdated:
        out.line(f"{run.recording.outdated} results of other versions in {run.recording.path} were not taken")
    for table in run.tables():
        out.line(f"{table.name}: {table.summary()}")
    for text in (*run.warnings, *run.rotten()):
        out.line(f"warning: {text}", yellow=True)
    for backend, text in run.to_add().items():
        out.line(f"on no list of {backend}; add with reasons what is meant to be so:", red=True)
        out.line(text)
    _write_table(run, out, config.getoption("dovetail_table"))
    _add_to_lists(run, out, config.getoption("dovetail_add_to"))


def _add_to_lists(run: SuiteRun, out: pytest.TerminalReporter, path: Path | None) -> None:
    """Add what is on no list to a file; an interrupted run adds what it measured."""
    if path is None:
        return
    import onnx

    from dovetail_testing.list_merging import add_to_lists

    for backend, text in run.to_add().items():
        try:
            add_to_lists(path, backend.partition(":")[0], ".".join(onnx.__version__.split(".")[:2]), text)
        except DovetailError as error:
            out.line(str(error), red=True)
            return
        out.line(f"added to {path}; fill in the reasons that are missing")


def _write_table(run: SuiteRun, out: pytest.TerminalReporter, path: Path | None) -> None:
    """Write the table, unless the run was interrupted; then an earlier table is kept."""
    if path is None:
        return
    if len(run.verdicts) < run.selected:
        out.line(f"{path} was not written: {len(run.verdicts)} of {run.selected} cases were run", red=True)
        return
    from dovetail_onnx.files.writing import write_text

    try:
        write_text(path, run.page())
    except DovetailError as error:
        out.line(str(error), red=True)
        return
    out.line(f"written: {path}")
