"""The commands `dovetail verify` and `dovetail bisect`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail.cli import PlainCommand, existing, note, option_keywords, plugins_of, print_json, say
from dovetail.errors import UsageError
from dovetail_commands.request import add_request, command_text, request_of, request_of_plan
from dovetail_commands.terminal import Progress, say_note, table, warn

from dovetail_verify.arguments import add_goals, add_input_shapes, checked_shapes, goals_of
from dovetail_verify.layers import ORDERS

if TYPE_CHECKING:
    from dovetail.passes import Request


def add_bisect_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bisect`."""
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument(
        "--runs", type=int, metavar="N", help="runs that refine the ranking (default: enough for the worst node)"
    )
    add_request(parser)
    add_goals(parser)


def run_bisect(args: argparse.Namespace) -> int:
    """Run `bisect`."""
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


BISECT = PlainCommand(
    "bisect", "Rank the nodes that cost the accuracy, and print what repairs it.", add_bisect_arguments, run_bisect
)


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `verify`."""
    parser.add_argument("original", type=Path, metavar="ORIGINAL")
    parser.add_argument("result", type=Path, metavar="RESULT", help="folder that compile wrote, or a model")
    parser.add_argument("--data", type=Path, metavar="FILE.npz|FOLDER", help="inputs (default: random ones)")
    add_input_shapes(parser)
    add_goals(parser)
    parser.add_argument(
        "--layers", action="store_true", help="measure every node, alone and with what has accumulated, worst first"
    )
    parser.add_argument(
        "--by", choices=ORDERS, default=ORDERS[0], help=f"what layers are ranked by (default: {ORDERS[0]})"
    )
    parser.add_argument(
        "--top",
        type=int,
        default=10,
        metavar="N",
        help="layers to show, and to measure at the outputs (default: 10)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")


def run_verify(args: argparse.Namespace) -> int:
    """Run `verify`."""
    for path in (args.original, args.result, args.data):
        existing(path)
    goals, shapes = goals_of(args), checked_shapes(args)
    if args.layers and args.data is None:
        raise UsageError("there is no data to look at layers with", "add --data: inputs like those the model will see")
    if args.top < 0:
        raise UsageError(f"--top {args.top}: a number from 0 is expected")
    import dovetail
    from dovetail.passes import Request

    from dovetail_verify.functions import verify

    plugins = plugins_of(args)
    original = dovetail.open(args.original, plugins)
    result = dovetail.load(args.result, plugins) if args.result.is_dir() else args.result
    with Progress() as progress:
        verification = verify(
            original,
            result,
            args.data,
            seed=args.seed,
            input_shapes=shapes,
            **goals,
            plugins=plugins,
            progress=progress,
        )
        layers = None
        if args.layers:
            from dovetail_verify.functions import layer_errors

            layers = layer_errors(
                original, result, args.data, by=args.by, outputs=args.top, plugins=plugins, progress=progress
            )
    if args.json:
        verification.layers = layers
        print_json(verification.as_dict())
    else:
        say(*verification.lines())
        if layers is not None:
            table(layers.table_rows(args.top))
            say(*layers.lines(args.top))
        for text in verification.notes:
            say_note(text)
    tried = ""
    if verification.warnings or verification.missed:
        # Read the plan only if needed: that of a large result takes a second.
        request = request_of_plan(result.plan) if result is not args.result else Request()
        request = replace(request, data=args.data or request.data)
        tried = f"`{command_text('bisect', args.original, request, plugins.registry)}` shows which nodes cost it"
        verification.remedy = f"{tried}; `dovetail compile --min-snr 30` raises them"
    if not args.json:
        warn(verification)
    for miss in verification.missed:
        note(f"error: the goal is not met: {miss}")
    if verification.missed:
        note(f"  {tried}; `dovetail compile` with the goal raises them")
        return 1
    if verification.broken:
        note("error: the result is broken: it is no approximation of the original")
        return 1
    return 0


VERIFY = PlainCommand(
    "verify", "Run a model and what was compiled from it, and compare the outputs.", add_verify_arguments, run_verify
)
