"""`dovetail plan`: decide without changing the model."""

from __future__ import annotations

import argparse
import sys

from dovetail.cli.common import PlainCommand, existing, option_keywords, output, plugins_of, print_json
from dovetail.planning.remark import assumed

from dovetail_commands.request import add_model, add_request, completed_model, request_of
from dovetail_commands.terminal import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    add_model(parser)
    parser.add_argument("-o", "--output", type=output, metavar="plan.yaml", help="file to write instead of printing")
    add_request(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    path = completed_model(args)
    request = {**request_of(args), **option_keywords(args)}
    from dovetail import api

    existing(path)
    model = api.open(path, plugins_of(args))
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
    for text in (*assumed(plan.remarks), *plan.notes):
        print(f"note: {text}", file=sys.stderr)
    return 0


PLAN = PlainCommand(
    "plan", "Decide where and in what every operator runs, and print or save the plan.", add_arguments, run
)
