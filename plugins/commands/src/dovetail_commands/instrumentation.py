"""Instrumentation arguments, for the commands that run a pipeline."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import note

if TYPE_CHECKING:
    from dovetail.passes import Instrumentation

__all__ = ["add_instrumentation", "instrumentation_of"]

_REPRODUCER = "dovetail-reproducer.onnx"


def add_instrumentation(parser: argparse.ArgumentParser) -> None:
    """Add the instrumentation options."""
    add = parser.add_argument_group("instrumentation").add_argument
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
    args: argparse.Namespace, progress: Any = None, stop_after: str = "", results: list[Any] | None = None
) -> Instrumentation:
    """Build the instrumentation from the options; the result of every pipeline is added to `results`."""
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
        progress=progress,
        finished=_reporter(args, results),
    )


def _reporter(args: argparse.Namespace, results: list[Any] | None) -> Any:
    def report(result):
        if results is not None:
            results.append(result)
        if args.timing:
            note(*result.timing_lines())
        if args.stats:
            note(*result.statistics_lines())

    return report
