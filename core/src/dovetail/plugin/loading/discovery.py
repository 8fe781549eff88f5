"""Discovery of installed plugins: entry points, disabled plugins, and name clashes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from dovetail.errors import UsageError
from dovetail.installed import EntryPoint, entry_points
from dovetail.text import did_you_mean

ENTRY_POINT_GROUP = "dovetail"


@dataclass
class PluginRecord:
    """The record of one plugin.

    Attributes:
        name: Name of its entry point.
        distribution: The distribution that brings it.
        version: Version of that distribution.
        target: The module (or object) that the entry point names.
        status: `ok`, `broken` (it failed; see `error`) or `disabled` (the user left it out).
        error: Why it is broken or disabled.
        hooks: Names of the hooks that it implements.
    """

    name: str
    distribution: str
    version: str
    target: str
    status: Literal["ok", "broken", "disabled"] = "ok"
    error: str = ""
    hooks: tuple[str, ...] = ()

    def fail(self, error: str) -> None:
        """Mark the plugin as broken."""
        self.status, self.error = "broken", error

    @property
    def title(self) -> str:
        """The plugin and its distribution, for messages: `plugin acme (dovetail-acme)`."""
        return f"plugin {self.name} ({self.distribution})"

    @property
    def absence(self) -> str:
        """Why its components are unavailable, with its version."""
        state = "is broken" if self.status == "broken" else "is disabled"
        return f"plugin {self.name} ({' '.join(filter(None, (self.distribution, self.version)))}) {state}: {self.error}"

    def as_dict(self) -> dict[str, object]:
        """Return the record as plain data."""
        return {**vars(self), "hooks": list(self.hooks)}

    def __str__(self) -> str:
        return f"{self.title}: {self.error or self.status}"


def discover(block: Collection[str], allow: Collection[str] | None) -> list[tuple[PluginRecord, EntryPoint]]:
    """Find every entry point once, sorted by name; the record of a plugin that is not loaded says why.

    Args:
        block: Names of plugins or distributions to leave out.
        allow: If given, leave out all others.

    Raises:
        UsageError: `block` or `allow` names a plugin that is not installed.
    """
    found = list(_find())
    _choose([record for record, _ in found], block, allow)
    _refuse_clashes(found)
    return found


def _find() -> Iterator[tuple[PluginRecord, EntryPoint]]:
    """Yield every entry point once, each under a unique name."""
    targets: dict[str, set[str]] = {}
    for point, distribution in entry_points(ENTRY_POINT_GROUP):
        known = targets.setdefault(point.name, set())
        if point.value not in known:
            name = f"{point.name}@{distribution.name}" if known else point.name
            known.add(point.value)
            yield PluginRecord(name, distribution.name, distribution.version, point.value), point


def _choose(records: list[PluginRecord], block: Collection[str], allow: Collection[str] | None) -> None:
    """Disable plugins that are blocked or not allowed."""
    known = {name for record in records for name in (record.name, record.distribution)}
    for name in (*block, *(allow or ())):
        if name not in known:
            raise UsageError(f"no plugin {name!r} is installed{did_you_mean(name, known)}")
    for record in records:
        names = {record.name, record.distribution}
        if names & set(block):
            record.status, record.error = "disabled", "left out by request"
        elif allow is not None and not names & set(allow):
            record.status, record.error = "disabled", "not among the plugins allowed"


def _refuse_clashes(found: list[tuple[PluginRecord, EntryPoint]]) -> None:
    """Among entry points of the same name, keep the first that is not disabled."""
    first: dict[str, PluginRecord] = {}
    for record, point in found:
        if record.status == "ok" and first.setdefault(point.name, record) is not record:
            other = first[point.name]
            record.fail(
                f"the name {point.name!r} belongs to {other.distribution} ({other.target}) already; "
                f"{record.distribution} ({record.target}) must choose another or be uninstalled"
            )
