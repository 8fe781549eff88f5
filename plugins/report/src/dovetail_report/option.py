"""`dovetail compile --report` and `dovetail.compile(..., report="report.html")`: the report next to the result."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import WRITTEN, option_group
from dovetail.errors import DovetailError, ResultError, UsageError
from dovetail.plugin import Option

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, CompileJob

_NAME = "report.html"


class Reported(Option):
    """Writes the report once a result is saved; also of one that misses its goals."""

    commands = ("compile",)
    keywords = ("report",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--report`."""
        option_group(parser, WRITTEN).add_argument(
            "--report", nargs="?", const="", metavar="FILE.html",
            help=f"write the report on the result (default: {_NAME} in the output folder); see `dovetail report`",
        )  # fmt: skip

    def keywords_of(self, args: argparse.Namespace) -> Mapping[str, Any]:
        """Return the path to write to; the output itself stands for `report.html` in it."""
        if args.report is None:
            return {}
        if args.report and Path(args.report).suffix.lower() not in (".html", ".htm"):
            raise UsageError(
                f"--report {args.report} is no name for a page", "let it end in .html, or name the model first"
            )
        return {"report": args.report or args.output or _NAME}

    def publish(self, job: CompileJob, compiled: CompiledModel) -> None:
        """Write the report on the result.

        Raises:
            ResultError: The report cannot be written.
        """
        if path := job.keywords.get("report"):
            _write(compiled, Path(path), job)


def _write(compiled: CompiledModel, path: Path, job: CompileJob) -> None:
    from dovetail_report.collect.document import document
    from dovetail_report.report import Report

    job.keep(compiled)
    try:
        if path.is_dir():
            Report(document(compiled, path)).save(path / _NAME)
        elif path.suffix.lower() in (".html", ".htm"):
            Report(document(compiled)).save(path)
        else:  # the output of another store, such as an archive
            Report(document(compiled)).save(path.with_suffix(".html"))
    except DovetailError as error:
        raise ResultError(compiled, f"the report could not be written: {error.message}", error.hint) from error


REPORTED = Reported()
