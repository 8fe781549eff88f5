"""Folders in the user's cache: results, artifacts and engines that a later program uses again.

A cache is a folder of entries, each a folder of files under a digest of all that it was made of. Several processes may
use it at once: an entry appears by one renaming, complete, and may be gone at any time. The least recently used ones
go when all together exceed a size. Entries are data: nothing in a cache is run as a program.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError

_OFF = "off"
_LARGEST = 4 << 30  # bytes
_KEY = re.compile(r"[0-9a-f]{64}")
_ABOUT, _FILES = "about.json", "files"
_ABANDONED = 3600.0  # seconds, after which what a killed process was writing goes


@dataclass(frozen=True)
class UserCache:
    """A cache that every user has, and how it is set up.

    Attributes:
        name: Its name, and that of its folder: `dovetail/NAME` in `$XDG_CACHE_HOME` or `~/.cache`.
        variable: The environment variable that names another folder, or `off`; with `_SIZE` behind it, the one with the
            most bytes of all entries, 4 GiB by default.
        holds: What an entry is, for people.
    """

    name: str
    variable: str
    holds: str

    def open(self) -> FolderCache | None:
        """Return this user's cache; None if it is off, or its folder belongs to somebody else."""
        given = os.environ.get(self.variable, "")
        if given == _OFF:
            return None
        home = os.environ.get("XDG_CACHE_HOME", "")
        folder = Path(given) if given else (Path(home) if home else Path.home() / ".cache") / "dovetail" / self.name
        size = os.environ.get(f"{self.variable}_SIZE", "")
        return FolderCache(folder, int(size) if size.isdecimal() else _LARGEST) if _is_own(folder) else None


RESULTS = UserCache("results", "DOVETAIL_RESULT_CACHE", "result")
ARTIFACTS = UserCache("artifacts", "DOVETAIL_ARTIFACT_CACHE", "artifact")
ENGINES = UserCache("tensorrt", "DOVETAIL_ENGINE_CACHE", "engine")
CACHES = (RESULTS, ARTIFACTS, ENGINES)
"""All caches: what sessions compiled, what emitters compiled, and what TensorRT built."""


@dataclass(frozen=True)
class CacheEntry:
    """An entry of a cache.

    Attributes:
        key: Its digest.
        folder: Its folder.
        about: What it is, for people, such as a model and backends.
        bytes: Its size.
        used: When it was used last, in seconds since 1970.
    """

    key: str
    folder: Path
    about: str
    bytes: int
    used: float


class FolderCache:
    """A folder of entries; several processes may use it at once.

    Args:
        folder: The folder.
        most: The most bytes of all entries.
    """

    def __init__(self, folder: Path, most: int = _LARGEST):
        self.folder, self.most = folder, most

    def find(self, key: str) -> tuple[Path, dict[str, Any]] | None:
        """Return the folder of an entry's files and its facts; None if there is none. A damaged one is removed."""
        entry = self.folder / key
        try:
            facts = dict(json.loads((entry / _ABOUT).read_text(encoding="utf-8"))["facts"])
            os.utime(entry)
        except (OSError, ValueError, KeyError, TypeError):
            self.drop(key)  # nothing, where there was none
            return None
        return entry / _FILES, facts

    def add_facts(self, key: str, about: str, facts: Mapping[str, Any]) -> None:
        """Add facts to an entry; one that is not there is made, without files. What fails costs nothing but them.

        Args:
            key: Its digest.
            about: What it is, for people, if it is made.
            facts: Plain data.
        """
        entry = self.folder / key
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            entry.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = entry / _ABOUT
            known: dict[str, Any] = {"about": about, "facts": {}}
            if path.exists():
                known = json.loads(path.read_text(encoding="utf-8"))
            text = json.dumps({**known, "facts": {**known["facts"], **facts}})
            handle, made = tempfile.mkstemp(prefix=".", dir=entry)  # others may read it meanwhile
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(made, path)

    def add_folder(self, key: str, about: str, name: str, write: Callable[[Path], Mapping[str, Any] | None]) -> None:
        """Add a folder of files to an entry, in place of an earlier one, and the fact of this name about it.

        The fact is `{"folder": ..., **what write returns}`, with the name of the folder in the entry. An entry that is
        not there is made. What fails costs nothing but the folder.

        Args:
            key: The digest of the entry.
            about: What it is, for people, if it is made.
            name: The name of the fact.
            write: Writes the files into a new folder, and returns facts, as plain data; None to add nothing.
        """
        entry = self.folder / key
        with contextlib.suppress(OSError, DovetailError):
            entry.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=entry))
            try:
                facts = write(made)
                if facts is not None:
                    self.add_facts(key, about, {name: {"folder": made.name, **facts}})
            finally:
                known = self._fact(key, name).get("folder")
                for path in entry.glob(f"{name}-*"):
                    # Another process may be writing one of them, which then fails, and costs nothing but that.
                    if path.name != known:
                        shutil.rmtree(path, ignore_errors=True)
            self._evict(key)

    def _fact(self, key: str, name: str) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = (self.folder / key / _ABOUT).read_text(encoding="utf-8")
            return dict(json.loads(text)["facts"][name])
        return {}

    def drop(self, key: str) -> None:
        """Remove an entry, such as a damaged one."""
        shutil.rmtree(self.folder / key, ignore_errors=True)

    def store(self, key: str, about: str, write: Callable[[Path], Mapping[str, Any]]) -> None:
        """Write an entry. What fails, such as for lack of space, costs nothing but the time of making it again.

        Args:
            key: Its digest.
            about: What it is, for people.
            write: Writes its files into a new folder, and returns facts about them, as plain data.
        """
        with contextlib.suppress(OSError, DovetailError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=".", dir=self.folder))
            try:
                (made / _FILES).mkdir()
                text = json.dumps({"about": about, "facts": dict(write(made / _FILES))})
                (made / _ABOUT).write_text(text, encoding="utf-8")
                os.rename(made, self.folder / key)  # fails where another process was faster
            finally:
                shutil.rmtree(made, ignore_errors=True)
        self._evict(key)

    def entries(self) -> list[CacheEntry]:
        """Return the entries, the least recently used first."""
        found = []
        for folder in self._folders():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))["about"]
                size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                found.append(CacheEntry(folder.name, folder, str(about), size, folder.stat().st_mtime))
        return sorted(found, key=lambda one: one.used)

    def clear(self) -> None:
        """Remove all entries."""
        for folder in self._folders():
            shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return [path for path in self.folder.iterdir() if _KEY.fullmatch(path.name)]
        return []

    def _evict(self, newest: str) -> None:
        """Remove the least recently used entries beyond the size, but not the newest one, which would never stay."""
        entries = self.entries()
        total = sum(entry.bytes for entry in entries)
        for entry in entries:
            if total <= self.most:
                break
            if entry.key != newest:
                shutil.rmtree(entry.folder, ignore_errors=True)
                total -= entry.bytes
        with contextlib.suppress(OSError):
            for path in self.folder.glob(".*"):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(path, ignore_errors=True)


def _is_own(folder: Path) -> bool:
    """Whether a folder is this user's alone to write, or can be made."""
    if not hasattr(os, "getuid"):
        return True
    try:
        status = folder.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o022
