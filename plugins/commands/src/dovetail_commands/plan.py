"""`dovetail plan`: decide without changing the model."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.common import PlainCommand, existing, output, plugins_of, print_json
from dovetail.errors import UsageError

from dovetail_commands.request import add_request, request_of
from dovetail_commands.terminal import Progress

__all__ = ["PLAN"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("-o", "--output", type=output, metavar="plan.yaml", help="file to write instead of printing")
    add_request(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if not args.backend:
        raise UsageError("no backend is named", "add --backend NAME (repeatable)")
    request = request_of(args)
    from dovetail import api

    model = api.open(existing(args.model), plugins_of(args))
    with Progress() as progress:
        plan = api.plan(model, **request, progress=progress)
    if args.output:
        plan.save(args.output)
    document = plan.as_dict()
    if args.json:
        print_json(document)
    elif args.output:
        print(args.output)
    else:
        print(plan, end="")
    return 0


PLAN = PlainCommand(
    "plan", "Decide where and in what every operator runs, and print or save the plan.", add_arguments, run
)
