"""The commands `dovetail bpu diff` and `dovetail bpu report`: comparison with the vendor's log, and its table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.cli import PlainCommand, columns, existing, note, plugins_of, print_json, say
from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail_bpu_int8.vendor.log_diff import LogDiff, ScaleDiff


_SHOWN = 20


def add_diff_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bpu diff`."""
    parser.add_argument("result", type=Path, metavar="OUT", help="the folder of a result for bpu-int8, or a plan file")
    parser.add_argument("log", type=Path, metavar="LOG", help="what hb_mapper or hb_compile printed for the same model")


def run_diff(args: argparse.Namespace) -> int:
    """Run `bpu diff`."""
    from dovetail_bpu_int8.vendor.log_diff import hb_diff

    existing(args.result)
    existing(args.log)
    found = hb_diff(args.result, args.log)
    if args.json:
        print_json(found.as_dict())
    else:
        say(*_diff_lines(found))
    return 0


def _diff_lines(found: LogDiff) -> list[str]:
    share = f" ({100 * found.same / found.both:.1f} %)" if found.both else ""
    here, there = found.subgraphs
    lines = [
        f"{pluralize(found.both, 'node')} in both, {found.same} on the same device{share}; "
        f"{pluralize(here, 'subgraph')} on the BPU, {there} in the log"
    ]
    if found.differences:
        rows = [(one.node, one.operator, one.here, one.there, one.type, one.reason) for one in found.differences]
        lines += ["", *columns([("Node", "Operator", "Here", "Log", "Type in the log", "Reason here"), *rows[:_SHOWN]])]
        lines += _more(rows)
    for what, names in (
        ("on the CPU here, and not in the log", found.only_here),
        ("in the log alone", found.only_there),
    ):
        if names:
            lines += ["", f"{pluralize(len(names), 'node')} {what}: {', '.join(names[:_SHOWN])}", *_more(names)]
    if found.thresholds:
        share = f"{100 * found.near / found.thresholds:.1f} %"
        lines += ["", f"thresholds of {pluralize(found.thresholds, 'node')} in both: {share} within 5 %"]
        far = [(name, f"{mine:.6g}", f"{other:.6g}") for name, mine, other in found.farthest]
        lines += columns([("farthest apart", "here", "log"), *far]) if far else []
    return lines + _scale_lines(found.scales)


def _scale_lines(found: ScaleDiff) -> list[str]:
    if not found.nodes:
        return []
    (here, there), (made, logged) = found.scales, found.requantized
    lines = [
        "",
        f"{pluralize(found.nodes, 'node')} with a scale in both, {found.alike} share it with the same nodes "
        f"({100 * found.alike / found.nodes:.1f} %); {pluralize(here, 'scale')}, {there} in the log",
    ]
    if made or logged:
        lines.append(
            f"{pluralize(made, 'value')} requantized, {logged} in the log; {found.requantized_alike} are the same"
        )
    rows = [(name, ", ".join(mine), ", ".join(theirs)) for name, mine, theirs in found.others]
    return lines + (columns([("Node", "shares with, only here", "only in the log"), *rows]) if rows else [])


def _more(listed: Sized) -> list[str]:
    return [f"and {len(listed) - _SHOWN} more (--json has all)"] if len(listed) > _SHOWN else []


DIFF = PlainCommand(add_diff_arguments, run_diff)


_LONGEST = 30  # characters of a name on a terminal; like the vendor's tools, cut names at the front


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bpu report`."""
    parser.add_argument("result", type=Path, metavar="OUT", help="the folder of a result for bpu-int8")


def run_report(args: argparse.Namespace) -> int:
    """Run `bpu report`."""
    from dovetail import api

    from dovetail_bpu_int8.vendor.report import hb_report

    existing(args.result)
    report = hb_report(api.load(args.result, plugins_of(args)))
    if args.json:
        print_json(report.as_dict())
        return 0
    say(*_report_lines(report.table_rows()))
    say("", "The quantify model output:", *_report_lines(report.output_rows()))
    say("", report.border_line())
    if report.predictions:
        say("", "Predicted:", *(one.line() for one in report.predictions))
    for text in report.notes:
        note(f"note: {text}")
    return 0


def _report_lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Format rows under their titles; cut long names on a terminal."""
    if not rows:
        return ["none"]
    cut = _cut if sys.stdout.isatty() else str
    first = next(iter(rows[0]))
    return columns(
        [list(rows[0]), *([cut(text) if title == first else text for title, text in row.items()] for row in rows)]
    )


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"...{name[3 - _LONGEST :]}"


REPORT = PlainCommand(add_report_arguments, run_report)
