"""The command `dovetail reduce`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli import PlainCommand, existing, note, output, print_json, say
from dovetail.errors import UsageError
from dovetail_commands.progress import Progress
from dovetail_commands.request import add_request, request_of
from dovetail_commands.terminal import say_note

from dovetail_verify.arguments import GOALS, add_goals

_SHOWN, _LONGEST = 20, 200  # nodes that are listed, and characters of their names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `reduce`."""
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument(
        "--check", metavar="COMMAND", help="a shell command that exits with another code than 0 if {model} fails; "
        "{data} is an .npz of its inputs"
    )  # fmt: skip
    parser.add_argument(
        "--raises", default="", metavar="TEXT", help="what the error, or the command's output, must hold to count"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=output,
        required=True,
        metavar="OUT",
        help="folder for the smallest model and the journal",
    )
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="S", help="seconds of one command (default: 120)"
    )
    parser.add_argument(
        "--attempts",
        type=int,
        default=1,
        metavar="N",
        help="runs of each check; a model fails if one does (default: 1)",
    )
    add_request(parser)
    add_goals(parser)


def run(args: argparse.Namespace) -> int:
    """Run `reduce`."""
    existing(args.model)
    request = request_of(args)
    if not args.backend and args.check is None:
        raise UsageError(
            "no condition of failure is given", "add --check COMMAND, or --backend NAME with a goal or --raises TEXT"
        )
    from dovetail_verify.reducing.functions import reduce

    goals = {name: getattr(args, name) for name in GOALS}
    try:
        with Progress() as progress:
            found = reduce(
                args.model, **request, **goals, check=args.check, raises=args.raises, output=args.output,
                timeout=args.timeout, attempts=args.attempts, progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        note(f"the journal is in {args.output}: the same command goes on from there")
        raise
    if args.json:
        print_json({**found.as_dict(), "output": str(args.output)})
        return 0
    say(*(f"  {name if len(name) <= _LONGEST else name[:_LONGEST] + '...'}" for name in found.nodes[:_SHOWN]))
    for text in found.notes:
        say_note(text)
    if found.said:
        say(f"the check says: {found.said}")
    say(f"{found.line()}: {args.output / 'model.onnx'}")
    return 0


REDUCE = PlainCommand(add_arguments, run)
