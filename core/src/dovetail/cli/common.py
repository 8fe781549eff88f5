"""Options that several commands share."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.files import output_path

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Instrumentation
    from dovetail.plugin.loader import PluginSet
    from dovetail.verification import Verification

__all__ = [
    "REPRODUCER",
    "add_goals",
    "add_input_shapes",
    "add_instrumentation",
    "add_request",
    "bisect_command",
    "command",
    "existing",
    "goals_of",
    "input_shapes_of",
    "instrumentation_of",
    "output",
    "plugins_of",
    "request_of",
    "warn",
]

REPRODUCER = "dovetail-reproducer.onnx"


def command(commands: Any, name: str, run: Any, summary: str) -> argparse.ArgumentParser:
    """Add a command with the options that every command has."""
    parser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(command=run)
    parser.add_argument("--json", action="store_true", help="print one JSON document on standard output")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.add_argument(
        "--no-plugin", action="append", default=[], metavar="NAME", help="leave out a plugin (repeatable)"
    )
    return parser


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
    add("--solver", default="forward", metavar="NAME", help="forward (default), fixpoint or min-cut")
    add("--costs", metavar="FILE|NAME", help="what min-cut counts; `dovetail bench costs` measures such a table")
    add("--pin", action="append", default=[], metavar="SELECTOR=backend/precision", help="a manual choice (repeatable)")
    low, high = "compute nodes in the low precision", "compute nodes in the source model's types"
    add("--low", action="append", default=[], metavar="SELECTOR", help=f"{low} whatever their policy is (repeatable)")
    add("--high", action="append", default=[], metavar="SELECTOR", help=f"{high} (repeatable)")
    add(
        "--keep-io-types",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep the types of the model's inputs and outputs (default: yes)",
    )


def request_of(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `dovetail.plan` and `dovetail.compile`."""
    return {
        "backends": args.backend,
        "strategy": args.strategy,
        "solver": args.solver,
        "costs": args.costs,
        "pins": tuple(args.pin),
        "low": tuple(args.low),
        "high": tuple(args.high),
        "keep_io_types": args.keep_io_types,
        "data": existing(args.data),
        "plugins": plugins_of(args),
    }


def add_goals(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how accurate a result must be."""
    add = parser.add_argument_group("accuracy goals, for every float output on the data").add_argument
    add("--min-snr", metavar="DB", help="signal to noise, in decibels")
    add("--min-cosine", metavar="C", help="cosine similarity, at most 1")
    add("--min-top1", metavar="SHARE", help="share of rows of scores with the same largest element: 0.99 or 99%%")
    add("--max-abs", metavar="X", help="largest difference of any element")


def goals_of(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `dovetail.compile` and `dovetail.verify` that say the goals.

    Raises:
        UsageError: A goal is no such number, or there is no data to measure it on.
    """
    from dovetail.accuracy.goals import Goals

    goals = Goals(args.min_snr, args.min_cosine, args.min_top1, args.max_abs)
    goals.check_data(args.data)
    return goals.as_dict()


def warn(verification: Verification, next_step: str) -> None:
    """Print what is alarming about a comparison on standard error, with what to do about it."""
    from dovetail.cli.output import note

    warnings = verification.warnings
    note(*(f"warning: {text}" for text in warnings))
    if warnings:
        note(f"  {next_step}" if not verification.random else "  measure on real inputs: --data FILE")


def bisect_command(model: Path, backends: Sequence[str], data: Path | None) -> str:
    """The command that finds what costs the accuracy, to be copied."""
    words = ["dovetail", "bisect", str(model), *(word for name in backends for word in ("--backend", name))]
    return shlex.join([*words, "--data", str(data or "FILE")])


def add_input_shapes(parser: argparse.ArgumentParser) -> None:
    """Add the option that says which shapes random inputs have."""
    parser.add_argument(
        "--input-shapes",
        action="append",
        default=[],
        metavar="NAME:1x3x48x320|FILE",
        help="shape of a random input where the model leaves it open (repeatable), or a file of arrays as an example",
    )


def input_shapes_of(args: argparse.Namespace, model: Model) -> dict[str, tuple[int, ...]]:
    """The shapes that the options give, by input name.

    Raises:
        UsageError: A text is neither a shape nor a file.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in args.input_shapes:
        if Path(text).is_file():
            from dovetail.verification.sources import array_shapes

            names = [value.name for value in model.graph.inputs if not value.is_initializer()]
            shapes |= array_shapes(Path(text), names)
            continue
        name, colon, extents = text.rpartition(":")
        if not colon or not name or not all(part.isdecimal() for part in extents.split("x")):
            raise UsageError(f"{text!r} is neither NAME:1x3x48x320 nor a file of arrays")
        shapes[name] = tuple(map(int, extents.split("x")))
    return shapes


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
        help=f"where to write what repeats a failure of a pass (default: {REPRODUCER} beside the output)",
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
        reproducer=args.crash_reproducer or beside / REPRODUCER,
        reproducer_weights=args.reproducer_weights,
        progress=progress,
        finished=_reporter(args),
    )


def plugins_of(args: argparse.Namespace) -> PluginSet:
    """The installed plugins without those left out."""
    from dovetail.plugin.loader import load_plugins

    return load_plugins(block=args.no_plugin)


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


def _reporter(args: argparse.Namespace) -> Any:
    from dovetail.cli.output import note

    def report(result):
        if args.timing:
            note(*result.timing_lines())
        if args.stats:
            note(*result.statistics_lines())

    return report
