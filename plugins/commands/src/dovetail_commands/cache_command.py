"""`dovetail cache`: what the next compilation, or the next start of a session, uses again."""

from __future__ import annotations

import argparse
import time

from dovetail.cli import PlainCommand, print_json, say
from dovetail.text import pluralize

_MOST_NAMES = 5  # shown of a folder's other content


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--clear", action="store_true", help="remove all entries, and nothing else")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail_onnx import CACHES

    shown = []
    for one in CACHES:
        cache = one.open()
        entries = cache.entries() if cache is not None else []
        if args.clear and cache is not None:
            cache.clear()
        others = cache.others() if cache is not None else []
        total = sum(entry.bytes for entry in entries)
        shown.append({
            "cache": one.name, "folder": str(cache.folder) if cache is not None else None, "bytes": total,
            "others": others,
            "entries": [{**vars(entry), "folder": str(entry.folder)} for entry in entries],
        })  # fmt: skip
        if args.json:
            continue
        if cache is None:
            say(f"{one.name}: not in use ({one.variable} names another folder, or is off)")
            continue
        for entry in reversed(entries):
            used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
            say(f"{used}  {entry.bytes / 1e6:9.3f} MB  {entry.about}")
        what = "removed" if args.clear else f"of at most {cache.most / 1e9:.3g} GB"
        say(f"{cache.folder}: {pluralize(len(entries), one.holds)}, {total / 1e6:.3g} MB {what}")
        if others:
            names = ", ".join(others[:_MOST_NAMES]) + (", ..." if len(others) > _MOST_NAMES else "")
            say(f"  not written by a cache, and left alone: {names}")
    if args.json:
        print_json({"caches": shown, "cleared": bool(args.clear)})
    return 0


CACHE = PlainCommand(add_arguments, run)
