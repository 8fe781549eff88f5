"""The journal of a tuning: what was tried and what it gave, one line of JSON each, so that a run can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError
from dovetail_runtime.machine import difference

_WHAT = {"model": "another model", "data": "other data", "goals": "other goals", "mode": "another measure of speed"}


class Journal:
    """The entries of one request on one machine, in a file that also keeps those of others.

    Args:
        path: The file, created on the first entry; None to keep entries in memory alone.
        key: What entries depend on, as plain data: model, data, goals, machine, versions.

    Attributes:
        others: What differs where the file has entries, but none of this key, in words; empty otherwise.

    Raises:
        DovetailError: The file is not readable, or no journal.
    """

    def __init__(self, path: Path | None, key: Mapping[str, str]):
        self._path, self._key = path, dict(key)
        self._entries: dict[tuple[str, str], dict[str, Any]] = {}
        self._begun = False
        latest: dict[str, str] | None = None
        current = False
        for entry in self._read():
            if "key" in entry:
                latest, current = entry["key"], entry["key"] == self._key
            elif current:
                self._entries[entry["kind"], entry["name"]] = entry
        self.others = "" if latest is None or self._entries else _difference(latest, self._key)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return what was recorded last, or None."""
        return self._entries.get((kind, name))

    def record(self, kind: str, name: str, **found: Any) -> dict[str, Any]:
        """Add an entry and return it.

        Raises:
            DovetailError: The file cannot be written.
        """
        entry = {"kind": kind, "name": name, **found}
        self._entries[kind, name] = entry
        if self._path is not None:
            lines = [entry] if self._begun else [{"key": self._key}, entry]
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a") as file:
                    # A run that was interrupted may have left half a line.
                    file.write("".join(["" if self._begun else "\n", *(json.dumps(line) + "\n" for line in lines)]))
            except OSError as error:
                raise DovetailError(f"{self._path}: the journal cannot be written: {error}") from None
            self._begun = True
        return entry

    def _read(self) -> Iterator[dict[str, Any]]:
        if self._path is None or not self._path.exists():
            return
        try:
            lines = self._path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DovetailError(f"{self._path} is no journal: {error}", "name another folder with --journal") from None
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # cut off when a run was interrupted
            if isinstance(entry, dict) and ("key" in entry or {"kind", "name"} <= entry.keys()):
                yield entry


def _difference(one: object, other: Mapping[str, str]) -> str:
    given = one if isinstance(one, dict) else {}
    found = [what for key, what in _WHAT.items() if given.get(key) != other.get(key)]
    return ", ".join([*found, *filter(None, [difference(one, other)])])
