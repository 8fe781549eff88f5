"""Commands: what a plugin brings as a command implements, and the commands that core brings the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    import argparse

    from dovetail.plugin.registry import Registry


CORE_COMMANDS = {name: f"dovetail.cli.{name}:{name.upper()}" for name in ("backends", "passes", "plugins")}
"""The targets of core's commands by name."""

_REQUIRED = ("name", "summary", "add_arguments", "run")


class Command(Protocol):
    """A command of the program `dovetail`, registered with `registry.command("hello", "acme.cli:HELLO")`.

    Help lists every command, so the module that holds it imports nothing heavy at its top. `dovetail.cli.common` has
    what all commands share; `--json`, `--debug` and `--no-plugin` are there already.

    Attributes:
        name: As users write it; the name that it is registered under.
        summary: One sentence for the help.
    """

    name: str
    summary: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command to its parser; called when the command is used."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command, and give its exit code.

        Raises:
            DovetailError: What the user can do something about; it is printed with its hint, and gives the exit code.
        """


def load_command(registry: Registry, name: str) -> Command:
    """The command that is registered as `name`.

    Raises:
        DovetailError: There is none, its module does not import, or what it holds is no command.
    """
    found: Command = registry.command[name]
    who = registry.command.title(name)
    if lacking := [name for name in _REQUIRED if not hasattr(found, name)]:
        raise DovetailError(f"{who} has no {', '.join(lacking)}", "see docs/plugins.md")
    if isinstance(found, type):
        raise DovetailError(f"{who} is a class", "register an object of it; see docs/plugins.md")
    if found.name != name:
        raise DovetailError(f"{who} calls itself '{found.name}'", "register it under the name that it has")
    return found
