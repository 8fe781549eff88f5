"""Options of commands in groups, and a help of one screen.

`--help` leaves out the groups that few people need: the options of one backend, and those for debugging passes.
`--help-all` lists them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

WRITTEN = "what to compile, and what to write"
INPUTS = "inputs of the model"
DECISIONS = "placement and types"
ENGINES = "engines and machines"
ACCURACY = "accuracy"
LANGUAGE = "options of language models"
DEBUGGING = "debugging of passes"
_OF_ONE = "options of "  # a backend or a front end
_SHORT = 12  # options that a line of usage may list


def option_group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Return the group of a title, which is added if the parser has none."""
    found = next((group for group in parser._action_groups if group.title == title), None)
    return found if found is not None else parser.add_argument_group(title)


def options_of(parser: argparse.ArgumentParser, name: str) -> argparse._ArgumentGroup:
    """Return the group of options that one backend, or one front end, reads; `--help` leaves it out."""
    return option_group(parser, _OF_ONE + name)


class CommandParser(argparse.ArgumentParser):
    """The parser of a command."""

    def __init__(self, *args: Any, **keywords: Any):
        super().__init__(*args, **keywords)
        self._lists_all = False

    def order_groups(self, titles: Sequence[str]) -> None:
        """Add groups in this order, which is that of the help; those without options are not listed."""
        for title in titles:
            option_group(self, title)

    def fold(self) -> None:
        """Add `--help-all`, if there is a group that `--help` leaves out."""
        if self._folded():
            self.add_argument("--help-all", action=_HelpAll, help="list all options, and exit")

    def format_usage(self) -> str:
        """Return the usage, without the options if these are many."""
        return f"{self._usage()}\n" if self._is_long() else super().format_usage()

    def format_help(self) -> str:
        """Return the help; see the module."""
        folded = [] if self._lists_all else self._folded()
        groups = list(self._action_groups)
        before = self.usage, self.epilog
        self.usage = self._usage().removeprefix("usage: ") if self._is_long() else None
        if folded:
            what = ", ".join(str(group.title) for group in folded)
            self.epilog = f"--help-all lists {sum(len(group._group_actions) for group in folded)} more: {what}."
        # The usage has the names of what has no option, and help of these is rare.
        self._action_groups[:] = [group for group in groups if group not in folded and not _is_bare(group)]
        try:
            return super().format_help()
        finally:
            self._action_groups[:] = groups
            self.usage, self.epilog = before

    def list_all(self) -> None:
        """Let the help list all groups."""
        self._lists_all = True

    def _folded(self) -> list[argparse._ArgumentGroup]:
        titles = ((group, str(group.title or "")) for group in self._action_groups if group._group_actions)
        return [group for group, title in titles if title == DEBUGGING or title.startswith(_OF_ONE)]

    def _is_long(self) -> bool:
        return sum(bool(action.option_strings) for action in self._actions) > _SHORT

    def _usage(self) -> str:
        formatter = self._get_formatter()
        places = [action for action in self._actions if not action.option_strings]
        formatter.add_usage(None, places, [], "")
        named = formatter.format_help().strip().removeprefix(self.prog).strip()
        return f"usage: {self.prog} [options] {named}".rstrip()


def _is_bare(group: argparse._ArgumentGroup) -> bool:
    """Check whether a group lists names alone, without any help."""
    actions = group._group_actions
    return bool(actions) and not any(action.option_strings or action.help for action in actions)


class _HelpAll(argparse.Action):
    """Prints the help with all groups."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None):
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the help, and leave."""
        if isinstance(parser, CommandParser):
            parser.list_all()
        parser.print_help()
        parser.exit()
