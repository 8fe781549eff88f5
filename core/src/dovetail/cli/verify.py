"""`dovetail verify`: compare a result with its original."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dovetail.cli.common import add_input_shapes, command, existing, input_shapes_of, plugins_of
from dovetail.cli.output import Progress, note, print_json, say

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(commands, "verify", run, "Run a model and what was compiled from it, and compare the outputs.")
    parser.add_argument("original", type=Path, metavar="ORIGINAL")
    parser.add_argument("result", type=Path, metavar="RESULT", help="folder that compile wrote, or a model")
    parser.add_argument("--data", type=Path, metavar="FILE.npz|FOLDER", help="inputs (default: random ones)")
    add_input_shapes(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    for path in (args.original, args.result, args.data):
        existing(path)
    from dovetail import api

    original, plugins = api.open(args.original), plugins_of(args)
    shapes = input_shapes_of(args, original)
    with Progress() as progress:
        verification = api.verify(
            original, args.result, args.data, seed=args.seed, input_shapes=shapes, plugins=plugins, progress=progress
        )
    if args.json:
        print_json(verification.as_dict())
    else:
        say(*verification.lines())
    if verification.broken:
        note("error: the result is broken: it is no approximation of the original")
        return 1
    return 0
