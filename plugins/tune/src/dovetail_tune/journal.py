"""The journal of a tuning: what was tried and what it gave, one line of JSON each, so that a run can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError, system_error
from dovetail_onnx.files.parsing import Malformed, parse_json
from dovetail_onnx.files.reading import UnreadableInput, read_input
from dovetail_runtime.machine import difference

from dovetail_tune.outside_data import (
    SIZE,
    Decibels,
    Fields,
    FiniteNumber,
    Form,
    ListOf,
    MapOf,
    Maybe,
    Race,
    Text,
    TupleOf,
)

_LARGEST = 1 << 28  # bytes
_NAMES = ListOf(Text())
_KINDS = "candidate", "race", "judgment", "noise", "pairs", "segment", "border", "folder", "folder judged", "prediction"
_ENTRY = Fields({"kind": Text(_KINDS), "name": Text()})
_PLACE = FiniteNumber(0, 1 << 31, whole=True)
_CANDIDATE = Fields({
    "name": Text(), "backends": _NAMES, "high": _NAMES, "pins": _NAMES,
    "margin": FiniteNumber(0, 1000), "threads": FiniteNumber(0, 1 << 20, whole=True),
})  # fmt: skip
_RATIO = FiniteNumber(1e-9, 1e9)
_FORMS: Mapping[str, Form] = {
    "candidate": Fields({
        "candidate": _CANDIDATE, "status": Text(("prepared", "failed", "repeated", "not tried")), "why": Text(),
        "snr_db": Maybe(Decibels()), "answers": Maybe(FiniteNumber(0, 1)), "missed": _NAMES, "bytes": SIZE,
        "coverage": Text(), "engines": _NAMES, "against": Maybe(TupleOf((_RATIO, _RATIO, _RATIO, SIZE))),
        "digest": Text(), "compile_seconds": FiniteNumber(0), "run_seconds": FiniteNumber(0),
    }),
    "race": Race({"memory": MapOf(SIZE)}),
    "judgment": Fields({"figure": Text(), "missed": _NAMES}),
    "noise": Fields({"noise": ListOf(FiniteNumber(0))}),
    "pairs": Fields({"pairs": ListOf(TupleOf((_PLACE, _PLACE, _PLACE, _PLACE, ListOf(FiniteNumber()))))}),
    "folder": Fields({
        "status": Text(("prepared", "failed")), "why": Text(), "kl": FiniteNumber(0), "top1": FiniteNumber(0, 1),
        "agreement": FiniteNumber(0, 1), "bytes": SIZE, "memory": Maybe(SIZE), "rise": Maybe(FiniteNumber()),
    }),
    "folder judged": Fields({"kl": FiniteNumber(0), "top1": FiniteNumber(0, 1), "rise": Maybe(FiniteNumber())}),
    "segment": Fields({"seconds": FiniteNumber(1e-12, 1e12)}),
    "border": Fields({"seconds": FiniteNumber(1e-12, 1e12)}),
    "prediction": Fields({"predicted": _RATIO, "measured": _RATIO}),
}  # fmt: skip
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
        self._lines: dict[tuple[str, str], int] = {}
        latest: dict[str, str] | None = None
        current = False
        for number, entry in self._read():
            if "key" in entry:
                if why := MapOf(Text()).problem(entry["key"]):
                    raise self._invalid(number, f"key: {why}")
                latest, current = entry["key"], entry["key"] == self._key
            elif current:
                if why := _ENTRY.problem(entry) or _FORMS[entry["kind"]].problem(entry):
                    raise self._invalid(number, why)
                self._entries[entry["kind"], entry["name"]] = entry
                self._lines[entry["kind"], entry["name"]] = number
        self.others = "" if latest is None or self._entries else _difference(latest, self._key)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return what was recorded last, or None."""
        return self._entries.get((kind, name))

    def entries(self, kind: str) -> list[dict[str, Any]]:
        """Return the entries of one kind, the oldest first."""
        return [entry for (known, _), entry in self._entries.items() if known == kind]

    def invalid(self, kind: str, name: str, problem: str) -> DovetailError:
        """Return an error that says what is wrong with an entry; it names the line if the file has it."""
        return self._invalid(self._lines.get((kind, name), 0), problem)

    def _invalid(self, line: int, problem: str) -> DovetailError:
        place = f"{self._path}:{line}" if line else str(self._path)
        way_out = "remove the line, so that it is measured again, or name another folder with --journal"
        return DovetailError(f"{place}: {problem}", way_out)

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
                raise system_error(error, f"{self._path}: the journal cannot be written") from None
            self._begun = True
        return entry

    def _read(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the entries with their lines, from 1."""
        if self._path is None or not self._path.exists():
            return
        try:
            lines = read_input(self._path, _LARGEST).decode().split("\n")
        except (UnreadableInput, UnicodeDecodeError) as error:
            raise DovetailError(f"{self._path} is no journal: {error}", "name another folder with --journal") from None
        for number, line in enumerate(lines, 1):
            try:
                entry = parse_json(line)
            except Malformed:
                continue  # cut off when a run was interrupted
            if isinstance(entry, dict) and ("key" in entry or {"kind", "name"} <= entry.keys()):
                yield number, entry


def _difference(one: object, other: Mapping[str, str]) -> str:
    given = one if isinstance(one, dict) else {}
    found = [what for key, what in _WHAT.items() if given.get(key) != other.get(key)]
    return ", ".join([*found, *filter(None, [difference(one, other)])])
