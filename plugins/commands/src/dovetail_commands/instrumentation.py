"""Instrumentation arguments, for the commands that run a pipeline."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.cli import DEBUGGING, note, option_group

if TYPE_CHECKING:
    from dovetail.passes import Instrumentation, Progress, Result

    from dovetail_commands.stages import StageReport

__all__ = ["add_instrumentation", "instrumentation_of", "statistics_lines", "timing_lines"]

_REPRODUCER = "dovetail-reproducer.onnx"


def add_instrumentation(parser: argparse.ArgumentParser) -> None:
    """Add the instrumentation options."""
    add = option_group(parser, DEBUGGING).add_argument
    add("--print-before", action="append", default=[], metavar="PASS", help="print the model before a pass, or `all`")
    add("--print-after", action="append", default=[], metavar="PASS", help="print the model after a pass, or `all`")
    add("--print-on-change", action="store_true", help="print the model after every pass that changed it")
    add("--print-on-failure", action="store_true", help="print the model as a failing pass left it")
    add(
        "--verify-each",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="verify the model after every pass that changed it (default: yes)",
    )
    add("--timing", action="store_true", help="print the seconds of every pass")
    add("--stats", action="store_true", help="print what the passes counted")
    add(
        "--crash-reproducer",
        type=Path,
        metavar="FILE.onnx",
        help=f"where to write what repeats a failure of a pass (default: {_REPRODUCER} beside the output)",
    )
    add("--reproducer-weights", action="store_true", help="write the weights into it, too (default: extents and types)")


def instrumentation_of(
    args: argparse.Namespace,
    progress: Progress | None = None,
    stop_after: str = "",
    report: StageReport | None = None,
) -> Instrumentation:
    """Build the instrumentation from the options; `report` is told what happens."""
    from dovetail.passes import Instrumentation

    beside = args.output.parent if args.output else Path()
    return Instrumentation(
        print_before=tuple(args.print_before),
        print_after=tuple(args.print_after),
        print_on_change=args.print_on_change,
        print_on_failure=args.print_on_failure,
        verify_each=args.verify_each,
        stop_after=stop_after,
        reproducer=args.crash_reproducer or beside / _REPRODUCER,
        reproducer_weights=args.reproducer_weights,
        progress=_beginning(progress, report),
        passed=None if report is None else report.passed,
        finished=_finishing(args, report),
    )


def _beginning(progress: Progress | None, report: StageReport | None) -> Progress | None:
    """Return what is called before every step: `report` learns of it first, then `progress`."""
    if report is None:
        return progress

    def begins(what: str, done: int, total: int) -> None:
        report.begins(what)
        if progress is not None:
            progress(what, done, total)

    return begins


def _finishing(args: argparse.Namespace, report: StageReport | None) -> Callable[[Result], None]:
    def finished(result: Result) -> None:
        if report is not None:
            report.finished(result)
        if args.timing:
            note(*timing_lines(result))
        if args.stats:
            note(*statistics_lines(result))

    return finished


def timing_lines(result: Result) -> list[str]:
    """Return time and share of every step of a run as an indented tree; the verifier is a step of its own."""
    verifier = sum(step.verify_seconds for _, step in result.steps())
    total = sum(step.seconds for step in result.passes) + verifier
    lines = [
        _timing(step.seconds, total, "  " * depth + step.name + ("" if step.changed else " (no change)"))
        for depth, step in result.steps()
    ]
    return [*lines, _timing(verifier, total, "verifier"), _timing(total, total, "total")]


def statistics_lines(result: Result) -> list[str]:
    """Return one line per pass and counter of a run."""
    return [
        f"{count:>8}  {name}  {counter}"
        for name, counts in result.statistics.items()
        for counter, count in counts.items()
    ]


def _timing(seconds: float, total: float, label: str) -> str:
    return f"{seconds:9.4f} s {100 * seconds / total if total else 0:5.1f} %  {label}"
