"""`dovetail verify`: compare a result with its original."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from dovetail.cli.common import PlainCommand, existing, note, plugins_of, print_json, say
from dovetail.errors import UsageError
from dovetail_commands.command_text import command_text, request_of_plan
from dovetail_commands.terminal import Progress, say_note, table
from dovetail_commands.verification import warn

from dovetail_verify.arguments import add_goals, add_input_shapes, checked_shapes, goals_of
from dovetail_verify.orders import ORDERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
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


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    for path in (args.original, args.result, args.data):
        existing(path)
    goals, shapes = goals_of(args), checked_shapes(args)
    if args.layers and args.data is None:
        raise UsageError("there is no data to look at layers with", "add --data: inputs like those the model will see")
    if args.top < 0:
        raise UsageError(f"--top {args.top}: a number from 0 is expected")
    import dovetail
    from dovetail.passes.request import Request

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
            from dovetail_verify.layer_functions import layer_errors

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
        # The plan of a large result takes a second to read.
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
    "verify", "Run a model and what was compiled from it, and compare the outputs.", add_arguments, run
)
