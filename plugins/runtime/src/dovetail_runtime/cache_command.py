"""The command `dovetail cache`: the results that are kept for programs that compile at their start."""

from __future__ import annotations

import argparse
import time

from dovetail.cli import PlainCommand, print_json, say
from dovetail.text import pluralize

_ACTIONS = ("show", "clear")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("action", nargs="?", choices=_ACTIONS, default=_ACTIONS[0], help="show (the default), or clear")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail_commands.terminal import table

    from dovetail_runtime.result_cache import result_cache

    cache = result_cache()
    if cache is None:
        if args.json:
            print_json({"folder": None, "results": [], "removed": 0})
        else:
            say("there is no cache: DOVETAIL_CACHE is off")
        return 0
    removed = cache.clear() if args.action == "clear" else 0
    entries = cache.entries()
    if args.json:
        print_json({"folder": str(cache.folder), "results": [vars(one) for one in entries], "removed": removed})
        return 0
    if args.action == "clear":
        say(f"{cache.folder}: {pluralize(removed, 'result')} removed")
        return 0
    table([
        {
            "result": one.about, "MB": f"{one.bytes / 1e6:.1f}",
            "last used": time.strftime("%Y-%m-%d %H:%M", time.localtime(one.used)),
        }
        for one in entries
    ])  # fmt: skip
    total = sum(one.bytes for one in entries)
    number = pluralize(len(entries), "result")
    say(f"{cache.folder}: {number}, {total / 1e6:.1f} MB; `dovetail cache clear` removes them")
    return 0


CACHE = PlainCommand("cache", "Show or clear the results that sessions keep.", add_arguments, run)
