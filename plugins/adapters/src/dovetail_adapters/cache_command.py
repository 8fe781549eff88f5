"""`dovetail cache`: the results that sessions keep for the next start."""

from __future__ import annotations

import argparse
import time

from dovetail.cli import PlainCommand, print_json, say
from dovetail.text import pluralize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--clear", action="store_true", help="remove all results")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail_adapters.result_cache import ResultCache

    cache = ResultCache.of_user()
    entries = cache.entries() if cache is not None else []
    if args.clear and cache is not None:
        cache.clear()
    total = sum(entry.bytes for entry in entries)
    if args.json:
        rows = [{**vars(one), "folder": str(one.folder)} for one in entries]
        print_json({
            "folder": str(cache.folder) if cache is not None else None, "results": rows, "bytes": total,
            "cleared": bool(args.clear),
        })  # fmt: skip
        return 0
    if cache is None:
        say("the cache is off, or its folder belongs to somebody else")
        return 0
    for entry in reversed(entries):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        say(f"{used}  {entry.bytes / 1e6:9.3f} MB  {entry.about}")
    what = "removed" if args.clear else f"of at most {cache.most / 1e9:.3g} GB"
    say(f"{cache.folder}: {pluralize(len(entries), 'result')}, {total / 1e6:.3g} MB {what}")
    return 0


CACHE = PlainCommand("cache", "Show or clear the results that sessions keep for the next start.", add_arguments, run)
