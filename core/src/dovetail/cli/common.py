"""What commands share, for those of core and of plugins: arguments, the request, plugins, and what is printed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli.output import columns, note, print_json, say
from dovetail.errors import DovetailError
from dovetail.plugin.options import blaming

if TYPE_CHECKING:
    from dovetail.plugin.loader import PluginSet

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
    plugins: PluginSet = args.command_line.plugins
    return plugins


def option_keywords(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments that come from what plugins add to the command.

    Raises:
        UsageError: The arguments make no sense.
        DovetailError: An option gives a keyword that it does not own.
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
