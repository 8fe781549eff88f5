"""The command-line parser: core's commands, commands of plugins, and the arguments that plugins add to either."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from dovetail import __version__
from dovetail.api_extensions import to_install
from dovetail.cli.option_groups import ACCURACY, DECISIONS, ENGINES, INPUTS, LANGUAGE, WRITTEN, CommandParser
from dovetail.errors import DovetailError, UsageError
from dovetail.installed import DISTRIBUTION
from dovetail.plugin.commands import load_command
from dovetail.plugin.loading.registry import COMMAND_GROUPS
from dovetail.plugin.options import COMMANDS_WITH_OPTIONS, InstalledOption, blaming, drop_option, installed_options
from dovetail.plugin.renamed import COMMANDS, now_called

if TYPE_CHECKING:
    from dovetail.plugin.commands import Command
    from dovetail.plugin.loading.loader import PluginSet
    from dovetail.plugin.loading.registry import Registry


_GROUPS = (WRITTEN, INPUTS, DECISIONS, ACCURACY, ENGINES, LANGUAGE)
_ABOUT = "Give every operator of a model a backend and a precision, and say why."
_EPILOG = "Options: `dovetail COMMAND --help`. Exit codes: 0 done, 1 model or request at fault, 2 command line."


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
        if self.name == "--version":
            return _program("")
        registry = self.plugins.registry
        if self.name not in registry.command and " ".join(self._arguments[:2]) in registry.command:
            self.name = " ".join(self._arguments[:2])
        vendors = sorted({name.partition(" ")[0] for name in registry.command if " " in name})
        if self.name in registry.command:
            self.owner = registry.command.entry(self.name).owner
            return self._with_called(_program(""), load_command(registry, self.name))
        if self.name in vendors:
            commands = [name.partition(" ")[2] for name in registry.command if name.startswith(f"{self.name} ")]
            if (word := next(iter(self._arguments[1:]), "-")).startswith("-"):
                return _program(_listing(registry, f"{self.name} "), self.name)
            self._refuse(f"{self.name} {word}", [f"{self.name} {one}" for one in commands])
        if self.name and not self.name.startswith("-"):
            self._refuse(self.name, [*registry.command, *vendors])
        return _program(_listing(registry))

    def _refuse(self, name: str, known: Sequence[str]) -> None:
        raise UsageError(
            f"there is no command {name!r}{now_called(name, COMMANDS, known)}",
            to_install(name) or "`dovetail --help` lists them; others come with the distributions that bring them",
        )

    def _with_called(self, program: argparse.ArgumentParser, command: Command) -> argparse.ArgumentParser:
        listed, summary = program, self.plugins.registry.command.entry(self.name).summary
        for word in self.name.split(" "):
            # Abbreviations would depend on which plugins are installed: without the one that verifies, `--verify`
            # would mean `--verify-each`.
            under = listed.add_subparsers(prog=listed.prog, parser_class=CommandParser)
            parser = under.add_parser(word, description=summary, allow_abbrev=False)
            listed = parser
        parser.set_defaults(command=command, command_line=self)
        parser.order_groups(_GROUPS)
        _add_arguments(parser, command)
        if self.name not in COMMANDS_WITH_OPTIONS:
            parser.fold()
            return program
        self.options = installed_options(self.plugins.registry, self.name)
        while faulty := _faulty(self.options, command):
            drop_option(self.plugins.registry, *faulty)
            self.options = [one for one in self.options if one.name != faulty[0]]
        for found in self.options:
            with blaming(found):
                found.option.add_arguments(parser)
        parser.fold()
        return program


def _faulty(options: Sequence[InstalledOption], command: Command) -> tuple[str, DovetailError] | None:
    """Return the first option whose arguments cannot be added, with the error; None if all can.

    A throwaway parser gets them: an option that fails halfway must not leave arguments behind.
    """
    trial = CommandParser(add_help=True)
    _add_arguments(trial, command)
    for one in options:
        try:
            with blaming(one):
                one.option.add_arguments(trial)
        except DovetailError as error:
            return one.name, error
    return None


def _program(listing: str, vendor: str = "") -> argparse.ArgumentParser:
    """Return the parser of the program, or of a vendor's commands, with the commands that its help lists."""
    prog = f"dovetail {vendor}".rstrip()
    about = f"Commands of {vendor}." if vendor else _ABOUT
    parser = argparse.ArgumentParser(
        prog=prog, usage=f"{prog} COMMAND ...", description=about, epilog=listing, add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"dovetail {__version__}", help=argparse.SUPPRESS)
    return parser


def _listing(registry: Registry, first: str = "") -> str:
    """Return the commands in their groups: all, or those whose name begins with a vendor's word."""
    shown = [entry for entry in registry.command.entries if entry.name.startswith(first)]
    width = max(len(entry.name) for entry in shown)
    lines = []
    for group, heading in COMMAND_GROUPS.items():
        if mine := [entry for entry in shown if entry.group == group]:
            lines += [f"{heading}:", *(f"  {entry.name:{width}}  {entry.summary}" for entry in mine), ""]
    return "\n".join([*lines, _EPILOG])


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
