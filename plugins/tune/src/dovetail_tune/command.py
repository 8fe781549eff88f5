"""The command `dovetail tune`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli import PlainCommand, existing, note, output, plugins_of, print_json, say
from dovetail.errors import UsageError
from dovetail_verify.arguments import add_goals, goals_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL")
    add("--backend", action="append", default=[], metavar="NAME[:key=value,...]",
        help="a backend to try beside the host (repeatable; default: all that run here)")  # fmt: skip
    add(
        "--data",
        type=Path,
        metavar="FILE|FOLDER",
        help="inputs like those that the model will see: half calibrates, half judges",
    )
    add("--for", dest="measure", choices=("latency", "throughput"), default="latency",
        help="what is fast: one call (default), or as many at the same time as there are CPUs")  # fmt: skip
    add(
        "--threads",
        type=_numbers,
        default=(),
        metavar="N[,N...]",
        help="threads of each engine to try; 0 for its own choice",
    )
    add("--no-mix", dest="mixed", action="store_false", help="try no plans that mix backends")
    add("--budget", type=float, metavar="SECONDS", help="stop after this time with the best that is known")
    add("--journal", type=output, metavar="FOLDER", help="results and journal, to resume from (default: OUT.tune)")
    add("-o", "--output", type=output, metavar="OUT", help="folder for the fastest result within the goal")
    add_goals(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    goals = goals_of(args)
    if args.data is None:
        raise UsageError("there is no data to tune on", "add --data: inputs like those that the model will see")
    from dovetail_commands.terminal import Progress, say_note, table

    from dovetail_tune.tuning import tune

    existing(args.model)
    journal = args.journal or (args.output and args.output.with_name(f"{args.output.name}.tune"))
    with Progress() as progress:
        tuned = tune(
            args.model, args.backend, data=existing(args.data), **goals, measure=args.measure,
            threads=args.threads, mixed=args.mixed, budget=args.budget, journal=journal, plugins=plugins_of(args),
            progress=progress,
        )  # fmt: skip
    if args.output and tuned.winner is not None:
        tuned.save(args.output)
    if args.json:
        print_json({**tuned.as_dict(), "output": args.output and str(args.output)})
    else:
        table(tuned.rows())
        for text in tuned.notes:
            say_note(text)
        say(*tuned.lines())
    if tuned.winner is None:
        note("error: no candidate meets the goals", "  lower the goal")
        return 1
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: numbers with commas between them are expected") from None


TUNE = PlainCommand("tune", "Find the fastest plan within an accuracy goal, by measuring.", add_arguments, run)
