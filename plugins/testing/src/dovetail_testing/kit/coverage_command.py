"""The command `dovetail coverage`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli import PlainCommand, existing, plugins_of, print_json, say
from dovetail_commands.terminal import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `coverage`."""
    parser.add_argument("backend", metavar="BACKEND|FILE", help="a backend, or the file of one")
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL")
    parser.add_argument(
        "--fix-shape", action="append", default=[], metavar="NAME:1x3x224x224", help="as `compile` does (repeatable)"
    )


def run(args: argparse.Namespace) -> int:
    """Run `coverage`."""
    for path in args.models:
        existing(path)
    from dovetail_testing.kit.coverage import coverage

    found = coverage(args.backend, args.models, plugins=plugins_of(args), fix_shapes=args.fix_shape)
    if args.json:
        print_json(found.as_dict())
        return 0
    table(found.rows())
    say(found.line())
    return 0


COVERAGE = PlainCommand(add_arguments, run)
