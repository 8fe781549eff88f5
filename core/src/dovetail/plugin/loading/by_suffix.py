"""Lookup of front ends and result stores by file suffix."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.plugin.loading.contracts import made, overrides
from dovetail.plugin.loading.isolation import PluginWarning

if TYPE_CHECKING:
    from dovetail.plugin.loading.registry import Table


class Installed(NamedTuple):
    """An instance of a registered class.

    Attributes:
        title: Kind, name and distribution, for messages.
        made: The instance.
    """

    title: str
    made: Any


class Chosen(NamedTuple):
    """The object chosen for a file.

    Attributes:
        found: The object; None if no suffix matches.
        suffix: The suffix that matched.
        suffixes: The suffixes of all candidates.
    """

    found: Installed | None
    suffix: str
    suffixes: list[str]


def installed(table: Table, contract: type) -> Iterator[Installed]:
    """Yield an instance of everything in a table, sorted by name; entries that fail are skipped with a warning.

    Args:
        table: The registered classes; they take no arguments, and their instances have `suffixes`.
        contract: The base class of the entries.
    """
    for name in table:
        title = table.title(name)
        try:
            yield Installed(title, _checked(table, name, title, contract))
        except DovetailError as error:
            warnings.warn(f"{error.message}; it is left out", PluginWarning, stacklevel=4)


def chosen_for(path: Path, table: Table, contract: type, verb: str) -> Chosen:
    """Return the object that implements `verb` and has the longest suffix that matches the file name.

    Raises:
        DovetailError: Two objects match.
    """
    by_suffix: dict[str, Installed] = {}
    clashes: dict[str, DovetailError] = {}
    for found in installed(table, contract):
        for suffix in found.made.suffixes if overrides(found.made, contract, verb) else ():
            other = by_suffix.setdefault(suffix, found)
            if other is not found:
                kind = f"files of the suffix {suffix}" if suffix else "files of any other suffix"
                message = f"{path}: {other.title} and {found.title} both {verb.replace('_', ' ')} {kind}"
                clashes[suffix] = DovetailError(message, "leave one of them out with --no-plugin")
    suffix = max((suffix for suffix in by_suffix if path.name.endswith(suffix)), key=len, default="")
    if suffix in clashes:
        raise clashes[suffix]
    return Chosen(by_suffix.get(suffix), suffix, sorted(filter(None, by_suffix)))


def _checked(table: Table, name: str, title: str, contract: type) -> Any:
    found: Any = made(table[name], title, contract)
    suffixes = found.suffixes
    if not (isinstance(suffixes, tuple) and suffixes and all(isinstance(suffix, str) for suffix in suffixes)):
        raise DovetailError(f"{title}: 'suffixes' is not a tuple of texts", "see docs/plugins.md")
    if undotted := [suffix for suffix in suffixes if suffix and not suffix.startswith(".")]:
        raise DovetailError(f"{title}: the suffix '{undotted[0]}' does not start with a dot", "see docs/plugins.md")
    return found
