"""What commands share, for those of core and of plugins: arguments, the request, plugins, and what is printed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli.output import Progress, columns, note, print_json, say, say_note, table
from dovetail.errors import DovetailError, UsageError
from dovetail.files import output_path
from dovetail.plugin.options import blaming

if TYPE_CHECKING:
    from dovetail.passes import Instrumentation
    from dovetail.plugin.loader import PluginSet
    from dovetail.verification import Verification

__all__ = [
    "PlainCommand",
    "Progress",
    "add_instrumentation",
    "add_request",
    "columns",
    "existing",
    "instrumentation_of",
    "no_arguments",
    "note",
    "option_keywords",
    "output",
    "plugins_of",
    "print_json",
    "request_of",
    "say",
    "say_note",
    "table",
    "warn",
]

_REPRODUCER = "dovetail-reproducer.onnx"


@dataclass(frozen=True)
class PlainCommand:
    """A command made of two functions; see `dovetail.plugin.Command` for the attributes."""

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing, for commands without arguments of their own."""


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is wanted from a compilation."""
    group = parser.add_argument_group("request")
    add = group.add_argument
    add(
        "--backend",
        action="append",
        default=[],
        type=_backend,
        metavar="NAME[:key=value,...]",
        help="a backend to use; repeat in order of preference",
    )
    add(
        "--data",
        type=Path,
        metavar="FILE|FOLDER",
        help="calibration and verification data: .npz, .npy, .pb, or a folder of them",
    )
    add("--strategy", metavar="NAME", help="how nodes are claimed, instead of what the backends say")
    add("--solver", default="forward", metavar="NAME", help="forward (default), fixpoint, min-cut, or one of a plugin")
    add("--costs", metavar="FILE|NAME", help="what min-cut counts; `dovetail bench costs` measures such a table")
    add("--pin", action="append", default=[], metavar="SELECTOR=backend/FORMAT", help="a manual choice (repeatable)")
    add(
        "--edit",
        action="append",
        default=[],
        type=_edit,
        metavar="KIND=NODE[:before|after]",
        help="change the graph next to a node (repeatable)",
    )
    low, high = "compute nodes in the low precision", "compute nodes in the source model's types"
    add("--low", action="append", default=[], metavar="SELECTOR", help=f"{low} whatever their policy is (repeatable)")
    add("--high", action="append", default=[], metavar="SELECTOR", help=f"{high} (repeatable)")
    add(
        "--keep-io-types",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep the types of the model's inputs and outputs (default: yes)",
    )
    add(
        "--freeze-inputs",
        action="store_true",
        help="take inputs that have a default for constants: nobody will give another value",
    )


def request_of(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `dovetail.plan` and `dovetail.compile`."""
    return {
        "backends": args.backend,
        "strategy": args.strategy,
        "solver": args.solver,
        "costs": args.costs,
        "pins": tuple(args.pin),
        "edits": tuple(args.edit),
        "low": tuple(args.low),
        "high": tuple(args.high),
        "keep_io_types": args.keep_io_types,
        "freeze_inputs": args.freeze_inputs,
        "data": existing(args.data),
        "plugins": plugins_of(args),
    }


def option_keywords(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments that come from what plugins add to the command.

    Raises:
        UsageError: The arguments make no sense.
        DovetailError: An option gives a keyword that it does not own.
    """
    found: dict[str, Any] = {}
    for option in args.command_line.options:
        with blaming(option):
            given = dict(option.option.keywords_of(args))
        if foreign := [name for name in given if name not in option.option.keywords]:
            raise DovetailError(
                f"{option.title} gives the keyword '{foreign[0]}', which is not its own", f"report it to {option.owner}"
            )
        found |= given
    return found


def add_instrumentation(parser: argparse.ArgumentParser) -> None:
    """Add the options that watch a pipeline."""
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


def instrumentation_of(args: argparse.Namespace, progress: Any = None, stop_after: str = "") -> Instrumentation:
    """What the options say about watching a pipeline."""
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
        finished=_reporter(args),
    )


def plugins_of(args: argparse.Namespace) -> PluginSet:
    """The installed plugins without those left out."""
    return args.command_line.plugins


def warn(verification: Verification) -> None:
    """Print what is alarming about a comparison on standard error, with what to do about it."""
    note(*(f"warning: {text}" for text in verification.warnings))
    if verification.warnings and verification.advice:
        note(f"  {verification.advice}")


def existing(path: Path | None) -> Path | None:
    """`path`, if it is there.

    Raises:
        DovetailError: It is not.
    """
    if path is not None and not path.exists():
        raise DovetailError(f"{path}: no such file or folder")
    return path


def output(text: str) -> Path:
    """The type of options that name what to write; an empty name is an error of the command line."""
    try:
        return output_path(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).replace("\n ", ":")) from None


def _backend(text: str) -> str:
    from dovetail.passes.request import BackendChoice

    try:
        BackendChoice.parse(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from None
    return text


def _edit(text: str) -> str:
    from dovetail.planning.edits import Edit

    try:
        Edit.parse(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None
    return text


def _reporter(args: argparse.Namespace) -> Any:
    def report(result):
        if args.timing:
            note(*result.timing_lines())
        if args.stats:
            note(*result.statistics_lines())

    return report
