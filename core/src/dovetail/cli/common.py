"""Helpers shared by all commands of core and plugins: arguments, requests, plugins and output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.plugin.options import blaming
from dovetail.text import abbreviated, json_escaped, printable

if TYPE_CHECKING:
    from dovetail.plugin.loading.loader import PluginSet


__all__ = [
    "PlainCommand",
    "columns",
    "existing",
    "no_arguments",
    "note",
    "option_keywords",
    "output",
    "plugins_of",
    "print_json",
    "say",
]


def note(*lines: str) -> None:
    """Print lines to standard error."""
    for line in lines:
        print(abbreviated(printable(line, lines=True)), file=sys.stderr)


def say(*lines: object) -> None:
    """Print lines to standard output; control characters in names are escaped."""
    for line in lines:
        print(abbreviated(printable(line, lines=True)))


def print_json(document: Any) -> None:
    """Print one JSON document to standard output; values that JSON cannot represent are printed as text."""
    print(json_escaped(json.dumps(document, indent=2, ensure_ascii=False, default=str)))


def columns(rows: Iterable[Sequence[object]], indent: str = "") -> list[str]:
    """Format rows as lines with aligned columns; the last column is not padded."""
    texts = [[abbreviated(printable(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts)]
    return [
        indent + "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths)), row[-1]]).rstrip()
        for row in texts
    ]


@dataclass(frozen=True)
class PlainCommand:
    """A command that consists of two functions; see `dovetail.plugin.Command`."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing, for commands without further arguments."""


def plugins_of(args: argparse.Namespace) -> PluginSet:
    """Return the installed plugins without those disabled on the command line."""
    plugins: PluginSet = args.command_line.plugins
    return plugins


def option_keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments that plugin options derive from the parsed arguments.

    Raises:
        UsageError: The arguments are inconsistent.
        DovetailError: An option returns a keyword that it does not own.
    """
    found: dict[str, Any] = {}
    for option in args.command_line.options:
        with blaming(option):
            given = dict(option.option.keywords_of(args))
        if foreign := [name for name in given if name not in option.option.keywords]:
            raise DovetailError(
                f"{option.title} gives the keyword '{foreign[0]}', which is not its own", f"report it to {option.owner}"
            )
        found |= given
    return found


def existing(path: Path | None) -> Path | None:
    """Return `path` if it exists.

    Raises:
        DovetailError: It does not exist.
    """
    if path is not None and not path.exists():
        raise DovetailError(f"{path}: no such file or folder")
    return path


def output(text: str) -> Path:
    """Convert an argument that names an output path; an empty name is a command-line error."""
    if not text.strip():
        why = "the output has an empty name: name a file or folder; `.` is the current folder"
        raise argparse.ArgumentTypeError(why)
    return Path(text)
