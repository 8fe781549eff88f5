"""`dovetail explain`: why a node runs where it runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.common import PlainCommand, existing, plugins_of, print_json, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("result", type=Path, metavar="DIR", help="folder that compile wrote, or a plan file")
    parser.add_argument(
        "node",
        nargs="?",
        metavar="SELECTOR",
        help="name of a node, of its output or of a source node, a pattern, type:OPERATOR or region:NUMBER "
        "(default: the whole model)",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="every node that the first backend has not got, by cause, with what would bring it there",
    )
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="the source model, to try what might bring the node elsewhere on it"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail_commands.explain.functions import elsewhere, explain

    existing(args.result)
    result, model, plugins = args.result, existing(args.model), plugins_of(args)
    if args.all and args.node is None and args.json:
        print_json(elsewhere(result, model=model, plugins=plugins).as_dict())
        return 0
    lines = explain(result, args.node, all=args.all, model=model, plugins=plugins)
    if args.json:
        print_json({"node": args.node, "lines": lines})
    else:
        say(*lines)
    return 0


EXPLAIN = PlainCommand(
    "explain", "Say why a node runs where it runs, and what could be done about it.", add_arguments, run
)
