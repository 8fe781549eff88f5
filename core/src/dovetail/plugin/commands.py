"""The contract of commands, and the commands of core, which use the same contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    import argparse

    from dovetail.plugin.loading.registry import Registry


_REQUIRED = ("add_arguments", "run")


class Command(Protocol):
    """A command of the program `dovetail`.

    It is registered with `registry.command("hello", "acme.cli:HELLO", "machine", "Say hello.")`, and imported when it
    is invoked. `dovetail.cli.common` has helpers for commands; `--json`, `--debug` and `--no-plugin` are added
    automatically.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command to its parser."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command, and return its exit code.

        Raises:
            DovetailError: An error that the user can act on; it is printed with its hint, and determines the exit code.
        """


def load_command(registry: Registry, name: str) -> Command:
    """Load the command registered as `name`.

    Raises:
        DovetailError: There is none, its module does not import, or its target is not a command.
    """
    found: Command = registry.command[name]
    title = registry.command.title(name)
    if lacking := [name for name in _REQUIRED if not hasattr(found, name)]:
        raise DovetailError(f"{title} has no {', '.join(lacking)}", "see docs/plugins.md")
    if isinstance(found, type):
        raise DovetailError(f"{title} is a class", "register an object of it; see docs/plugins.md")
    return found
