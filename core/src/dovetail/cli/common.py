"""What commands share, for those of core and of plugins: arguments, the request, plugins, and what is printed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.cli.output import columns, note, print_json, say
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.plugin.loader import PluginSet

__all__ = [
    "PlainCommand",
    "columns",
    "existing",
    "no_arguments",
    "note",
    "output",
    "plugins_of",
    "print_json",
    "say",
]


@dataclass(frozen=True)
class PlainCommand:
    """A command made of two functions; see `dovetail.plugin.Command` for the attributes."""

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing, for commands without arguments of their own."""


def plugins_of(args: argparse.Namespace) -> PluginSet:
    """The installed plugins without those left out."""
    return args.command_line.plugins


def existing(path: Path | None) -> Path | None:
    """`path`, if it is there.

    Raises:
        DovetailError: It is not.
    """
    if path is not None and not path.exists():
        raise DovetailError(f"{path}: no such file or folder")
    return path


def output(text: str) -> Path:
    """The type of options that name what to write; an empty name is an error of the command line."""
    if not text.strip():
        why = "the output has an empty name: name a file or folder; `.` is the current folder"
        raise argparse.ArgumentTypeError(why)
    return Path(text)
