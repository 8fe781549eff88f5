"""The command-line parser: core's commands, commands of plugins, and the arguments that plugins add to either."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from dovetail import __version__
from dovetail.api_extensions import to_install
from dovetail.errors import DovetailError, UsageError
from dovetail.installed import DISTRIBUTION
from dovetail.plugin.commands import load_command
from dovetail.plugin.loading.isolation import PluginWarning
from dovetail.plugin.options import COMMANDS_WITH_OPTIONS, InstalledOption, blaming, drop_option, installed_options
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from dovetail.plugin.commands import Command
    from dovetail.plugin.loading.loader import PluginSet
    from dovetail.plugin.loading.registry import Registry

    _Subparsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]


class CommandLine:
    """One invocation of the program.

    Only the module of the invoked command is imported.

    Args:
        arguments: The command-line words after the program name.

    Attributes:
        name: The first word: a command, an option, or a mistake.
        owner: The distribution that provides the command, once known.
        options: The options that plugins add to the command, once its parser is built.
    """

    def __init__(self, arguments: Sequence[str]):
        self._arguments = list(arguments)
        self.name = self._arguments[0] if self._arguments else ""
        self.owner = DISTRIBUTION
        self.options: list[InstalledOption] = []

    @cached_property
    def plugins(self) -> PluginSet:
        """The installed plugins without those disabled by `--no-plugin`.

        Raises:
            UsageError: `--no-plugin` names a plugin that is not installed.
        """
        from dovetail.plugin.loading.loader import load_plugins

        before = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
        _add_no_plugin(before)
        try:
            left_out = before.parse_known_args(self._arguments)[0].no_plugin
        except argparse.ArgumentError:
            left_out = []  # the command's parser reports the error
        return load_plugins(block=left_out)

    def parser(self) -> argparse.ArgumentParser:
        """Build the parser for this invocation; only the invoked command gets its arguments, others are listed.

        Raises:
            UsageError: There is no such command.
            DovetailError: The invoked command cannot be loaded.
        """
        parser = argparse.ArgumentParser(
            prog="dovetail",
            description="Give every operator of a model a backend and a precision, and say why.",
            epilog="Exit codes: 0 done, 1 the model or the request is at fault, 2 the command line is wrong.",
        )
        parser.add_argument("--version", action="version", version=f"dovetail {__version__}")
        if self.name == "--version":
            return parser
        listed = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
        registry = self.plugins.registry
        if self.name and not self.name.startswith("-") and self.name not in registry.command:
            raise UsageError(
                f"there is no command {self.name!r}{did_you_mean(self.name, registry.command)}",
                to_install(self.name)
                or "`dovetail --help` lists them; others come with the distributions that bring them",
            )
        if self.name in registry.command:
            self.owner = registry.command.entry(self.name).owner
            self._add_called(listed, load_command(registry, self.name))
        else:
            _list_commands(listed, registry)
        return parser

    def _add_called(self, listed: _Subparsers, command: Command) -> None:
        # Abbreviations would depend on which plugins are installed: without the one that verifies, `--verify` would
        # mean `--verify-each`.
        parser = listed.add_parser(command.name, help=command.summary, description=command.summary, allow_abbrev=False)
        parser.set_defaults(command=command, command_line=self)
        _add_arguments(parser, command)
        if command.name not in COMMANDS_WITH_OPTIONS:
            return
        self.options = installed_options(self.plugins.registry, command.name)
        while faulty := _faulty(self.options, command):
            drop_option(self.plugins.registry, *faulty)
            self.options = [one for one in self.options if one.name != faulty[0]]
        for found in self.options:
            with blaming(found):
                found.option.add_arguments(parser)


def _faulty(options: Sequence[InstalledOption], command: Command) -> tuple[str, DovetailError] | None:
    """Return the first option whose arguments cannot be added, with the error; None if all can.

    A throwaway parser gets them: an option that fails halfway must not leave arguments behind.
    """
    trial = argparse.ArgumentParser(add_help=True)
    _add_arguments(trial, command)
    for one in options:
        try:
            with blaming(one):
                one.option.add_arguments(trial)
        except DovetailError as error:
            return one.name, error
    return None


def _list_commands(listed: _Subparsers, registry: Registry) -> None:
    """Add a line for every command that loads; warn about the others."""
    for name in registry.command:
        try:
            summary = load_command(registry, name).summary
        except DovetailError as error:
            warnings.warn(error.message, PluginWarning, stacklevel=2)
        else:
            listed.add_parser(name, help=summary)


def _add_arguments(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add the arguments of a command, and those common to all commands."""
    parser.add_argument("--json", action="store_true", help="print one JSON document on standard output")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    _add_no_plugin(parser)
    command.add_arguments(parser)


def _add_no_plugin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-plugin", action="append", default=[], metavar="NAME", help="leave out a plugin (repeatable)"
    )
