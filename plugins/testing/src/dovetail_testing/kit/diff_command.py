"""The command `dovetail diff`."""

from __future__ import annotations

import argparse

from dovetail.cli import PlainCommand, plugins_of, print_json, say
from dovetail.text import pluralize
from dovetail_commands.terminal import table

_WIDEST = 100  # characters of a cell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diff`."""
    side = "a backend, the file of one, a plan, or the folder of a result"
    parser.add_argument("first", metavar="A", help=side)
    parser.add_argument("second", metavar="B", help="the same")


def run(args: argparse.Namespace) -> int:
    """Run `diff`; the exit code is 0 also where there are differences."""
    from dovetail_testing.kit.differences import differences

    kind, found = differences(args.first, args.second, plugins_of(args))
    if args.json:
        print_json({"kind": kind, "differences": [one._asdict() for one in found]})
        return 0
    keys = {"what": "what", "part": "part", "first": args.first, "second": args.second}
    table([{title: _short(getattr(one, name)) for name, title in keys.items()} for one in found])
    say(f"{pluralize(len(found), 'difference')} between the {kind}" if found else f"the {kind} are the same")
    return 0


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


DIFF = PlainCommand(add_arguments, run)
