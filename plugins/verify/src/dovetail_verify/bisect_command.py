"""`dovetail bisect`: which nodes cost a request its accuracy, and what to raise."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail.cli.common import (
    PlainCommand,
    existing,
    option_keywords,
    plugins_of,
    print_json,
    say,
)
from dovetail.errors import UsageError
from dovetail_commands.command_text import command_text
from dovetail_commands.request import add_request, request_of
from dovetail_commands.terminal import Progress, say_note, table

from dovetail_verify.arguments import add_goals, goals_of

if TYPE_CHECKING:
    from dovetail.passes import Request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument(
        "--runs", type=int, metavar="N", help="runs that refine the ranking (default: enough for the worst node)"
    )
    add_request(parser)
    add_goals(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if not args.backend:
        raise UsageError("no backend is named", "add --backend NAME (repeatable)")
    if args.data is None:
        raise UsageError("there is no data to rank nodes on", "add --data: inputs like those that the model will see")
    goals = goals_of(args)
    from dovetail_verify.functions import bisect

    existing(args.model)
    with Progress() as progress:
        ranking = bisect(
            args.model,
            **request_of(args),
            **option_keywords(args),
            **goals,
            runs=args.runs,
            progress=progress,
        )
    raised = [word for selector in ranking.high for word in ("--high", selector)]
    request = cast("Request", ranking.request)
    command_line = command_text("compile", args.model, request, plugins_of(args).registry, raised)
    if args.json:
        print_json({**ranking.as_dict(), "command": command_line})
        return 0
    table(ranking.table_rows())
    for text in ranking.notes:
        say_note(text)
    say(*ranking.lines())
    if ranking.high:
        say(command_line)
    return 0


BISECT = PlainCommand("bisect", "Rank the nodes that cost the accuracy, and print what repairs it.", add_arguments, run)
