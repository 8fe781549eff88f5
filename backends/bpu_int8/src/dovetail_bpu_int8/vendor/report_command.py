"""`dovetail hb-report`: a result in the table of the vendor's tools."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dovetail.cli.common import PlainCommand, columns, existing, note, plugins_of, print_json, say

_LONGEST = 30  # characters of a name on a terminal; the vendor's tools cut names in front


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("result", type=Path, metavar="OUT", help="the folder of a result for bpu-int8")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail import api

    from dovetail_bpu_int8.vendor.report import hb_report

    existing(args.result)
    report = hb_report(api.load(args.result, plugins_of(args)))
    if args.json:
        print_json(report.as_dict())
        return 0
    say(*_lines(report.table_rows()))
    say("", "The quantify model output:", *_lines(report.output_rows()))
    say("", report.border_line())
    if report.predictions:
        say("", "Predicted:", *(one.line() for one in report.predictions))
    for text in report.notes:
        note(f"note: {text}")
    return 0


def _lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Rows under their titles; long names are cut where a person reads them."""
    if not rows:
        return ["none"]
    cut = _cut if sys.stdout.isatty() else str
    first = next(iter(rows[0]))
    return columns(
        [list(rows[0]), *([cut(text) if title == first else text for title, text in row.items()] for row in rows)]
    )


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"...{name[3 - _LONGEST :]}"


HB_REPORT = PlainCommand("hb-report", "Show a result for bpu-int8 in the table of hb_mapper.", add_arguments, run)
