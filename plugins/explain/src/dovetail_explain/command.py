"""`dovetail explain`: why a node runs where it runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.common import PlainCommand, existing, plugins_of, print_json, say

__all__ = ["EXPLAIN"]


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
        "--model", type=Path, metavar="FILE", help="the source model, to try what might bring the node elsewhere on it"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail_explain.functions import explain

    lines = explain(existing(args.result), args.node, model=existing(args.model), plugins=plugins_of(args))
    if args.json:
        print_json({"node": args.node, "lines": lines})
    else:
        say(*lines)
    return 0


EXPLAIN = PlainCommand(
    "explain", "Say why a node runs where it runs, and what could be done about it.", add_arguments, run
)
