"""What plugins bring for files of a suffix: front ends, and stores of results."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.plugin.contracts import made, overrides
from dovetail.plugin.isolation import PluginWarning

if TYPE_CHECKING:
    from dovetail.plugin.registry import Table


class Installed(NamedTuple):
    """A registered class, called.

    Attributes:
        who: Its kind, its name and its distribution, for messages.
        made: The object.
    """

    who: str
    made: Any


class Chosen(NamedTuple):
    """What is responsible for a file.

    Attributes:
        found: That object; None if there is none.
        suffix: The suffix that decided.
        suffixes: The suffixes of all that might have been chosen.
    """

    found: Installed | None
    suffix: str
    suffixes: list[str]


def installed(table: Table, contract: type) -> Iterator[Installed]:
    """Everything in a table, sorted by name; what is at fault is left out with a warning.

    Args:
        table: Holds classes that are called without arguments, and whose objects have `suffixes`.
        contract: The base class of these.
    """
    for name in table:
        who = table.title(name)
        try:
            yield Installed(who, _checked(table, name, who, contract))
        except DovetailError as error:
            warnings.warn(f"{error.message}; it is left out", PluginWarning, stacklevel=4)


def chosen_for(path: Path, table: Table, contract: type, verb: str) -> Chosen:
    """What has the longest suffix that the name of a file ends with, and the method `verb`.

    Raises:
        DovetailError: There are two of them.
    """
    by_suffix: dict[str, Installed] = {}
    clashes: dict[str, DovetailError] = {}
    for found in installed(table, contract):
        for suffix in found.made.suffixes if overrides(found.made, contract, verb) else ():
            other = by_suffix.setdefault(suffix, found)
            if other is not found:
                kind = f"files of the suffix {suffix}" if suffix else "files of any other suffix"
                message = f"{path}: {other.who} and {found.who} both {verb.replace('_', ' ')} {kind}"
                clashes[suffix] = DovetailError(message, "leave one of them out with --no-plugin")
    suffix = max((suffix for suffix in by_suffix if path.name.endswith(suffix)), key=len, default="")
    if suffix in clashes:
        raise clashes[suffix]
    return Chosen(by_suffix.get(suffix), suffix, sorted(filter(None, by_suffix)))


def _checked(table: Table, name: str, who: str, contract: type) -> Any:
    found: Any = made(table[name], who, contract)
    suffixes = found.suffixes
    if not (isinstance(suffixes, tuple) and suffixes and all(isinstance(suffix, str) for suffix in suffixes)):
        raise DovetailError(f"{who}: 'suffixes' is not a tuple of texts", "see docs/plugins.md")
    if undotted := [suffix for suffix in suffixes if suffix and not suffix.startswith(".")]:
        raise DovetailError(f"{who}: the suffix '{undotted[0]}' does not start with a dot", "see docs/plugins.md")
    return found
