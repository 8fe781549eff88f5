"""Folders in the user's cache: results, artifacts and engines that a later program uses again.

A cache is a folder of entries, each a folder of files under a digest of all that it was made of. Several processes may
use it at once: an entry appears by one renaming, complete, and may be gone at any time. The least recently used ones
go when all together exceed a size. Entries are data: nothing in a cache is run as a program.

A cache removes only what it wrote. Its folder carries a marker file, and every entry a record of its key and of all of
its files; a folder that has another name than its record says, or that holds anything else, is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError, DovetailWarning
from dovetail.plugin import hold, remove_orphans

from dovetail_onnx.files.cache_record import ABOUT, FILES, NEW, EntryRecord, about_earlier, closed, read_own
from dovetail_onnx.files.private_folders import cache_folder, exposed

_OFF = "off"
_LARGEST = 4 << 30  # bytes
_DIGITS = 64  # of a key
_NAME = re.compile(r"([0-9a-f]{64})(?:-[a-z]+)?")  # of a folder: a key, and a part
_UNFINISHED = re.compile(rf"unfinished-{_NAME.pattern}-[0-9a-f]{{16}}")
_MARKER = "CACHEDIR.TAG"
_MARK = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"  # of such files, see bford.info/cachedir
    b"# A cache of Dovetail: entries may be removed at any time, and nothing else is touched.\n"
)


@dataclass(frozen=True)
class UserCache:
    """A cache that every user has, and how it is set up.

    Attributes:
        name: Its name, and that of its folder in the folder of caches.
        variable: The environment variable that names another folder, or `off`; with `_SIZE` behind it, the one with the
            most bytes of all entries, 4 GiB by default.
        holds: What an entry is, for people.
    """

    name: str
    variable: str
    holds: str

    def open(self) -> FolderCache | None:
        """Return this user's cache; None if it is off, or, with a warning, if its folder cannot be used safely."""
        given = os.environ.get(self.variable, "")
        if given == _OFF:
            return None
        folder = Path(given) if given else cache_folder() / self.name
        size = os.environ.get(f"{self.variable}_SIZE", "")
        cache = FolderCache(folder, int(size) if size.isdecimal() else _LARGEST)
        refusal = cache.refusal()
        if refusal:
            text = f"the cache of {self.holds}s is not used: {refusal} ({self.variable} names the folder)"
            warnings.warn(text, DovetailWarning, stacklevel=2)
        return None if refusal else cache


RESULTS = UserCache("results", "DOVETAIL_RESULT_CACHE", "result")
ARTIFACTS = UserCache("artifacts", "DOVETAIL_ARTIFACT_CACHE", "artifact")
ENGINES = UserCache("tensorrt", "DOVETAIL_ENGINE_CACHE", "engine")
CACHES = (RESULTS, ARTIFACTS, ENGINES)
"""All caches: what sessions compiled, what emitters compiled, and what TensorRT built."""


@dataclass(frozen=True)
class CacheEntry:
    """An entry of a cache, with its parts.

    Attributes:
        key: Its digest.
        folder: The folder of its first part.
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
        self.folder, self.most = folder.absolute(), most

    def refusal(self) -> str:
        """Say why the folder cannot be used, and what to do; empty if it can.

        It must not be within reach of other users, and either carries the marker of a cache, or is new or empty, or
        holds nothing but entries of an earlier version.
        """
        with contextlib.suppress(FileNotFoundError):
            found = exposed(self.folder)
            if found:
                return found
            names = os.listdir(self.folder) if self.folder.exists() else []
            if not names or self._is_marked() or self._adopted(names):
                return ""
            other = "holds other things and was not made as a cache; name a new or an empty folder"
            return f"{self.folder} {other}"
        return ""

    def find(
        self, key: str, part: str = "", damaged: Callable[[Path], None] = lambda _: None
    ) -> tuple[Path, dict[str, Any]] | None:
        """Return the folder of an entry's files and its facts; None if there is none. A damaged one is removed.

        Args:
            key: Its digest.
            part: See `store`.
            damaged: Called with the entry before it is removed.
        """
        name = _name(key, part)
        entry, record = self.folder / name, EntryRecord.read(self.folder / name, name)
        if record is None:
            return None
        if not record.is_whole(entry):
            damaged(entry)
            self._drop(name)
            return None
        with contextlib.suppress(OSError):
            os.utime(entry)
        return entry / FILES, record.facts

    def drop(self, key: str, part: str | None = None) -> None:
        """Remove an entry, such as a damaged one; one that holds other things as well stays.

        Args:
            key: Its digest.
            part: The part to remove; all by default.
        """
        for name in self._names():
            if name.startswith(key) if part is None else name == _name(key, part):
                self._drop(name)

    def store(self, key: str, about: str, write: Callable[[Path], Mapping[str, Any] | None], part: str = "") -> None:
        """Write an entry, in place of an earlier one.

        What fails, such as for lack of space, costs nothing but the time of making it again.

        Args:
            key: Its digest.
            about: What it is, for people.
            write: Writes its files into a new folder, and returns facts about them, as plain data; None if there is
                nothing to keep.
            part: A word, for what is written apart from the rest of an entry and goes with it.
        """
        with contextlib.suppress(OSError, DovetailError):
            if not self._is_ready():
                return
            name = _name(key, part)
            with self._unfinished(name) as made:
                (made / FILES).mkdir(mode=0o700)
                facts = write(made / FILES)
                if facts is None:
                    return
                EntryRecord(about, dict(facts), closed(made)).write(made, name)
                self._drop(name)
                if not os.path.lexists(self.folder / name):  # an empty folder would be replaced
                    os.rename(made, self.folder / name)  # fails where another process was faster
        self._evict(key)

    def entries(self) -> list[CacheEntry]:
        """Return the entries, the least recently used first."""
        found: dict[str, CacheEntry] = {}
        for name in sorted(self._names()):
            folder, record = self.folder / name, EntryRecord.read(self.folder / name, name)
            if record is None or record.files is None:
                continue
            with contextlib.suppress(OSError):
                size = record.bytes + (folder / ABOUT).lstat().st_size
                key, used = name[:_DIGITS], folder.lstat().st_mtime
                one = found.get(key, CacheEntry(key, folder, record.about, 0, used))
                about = one.about or record.about
                found[key] = replace(one, about=about, bytes=one.bytes + size, used=max(one.used, used))
        return sorted(found.values(), key=lambda one: one.used)

    def clear(self) -> None:
        """Remove all entries."""
        for name in self._names():
            self._drop(name)
        self._remove_abandoned()

    def others(self) -> list[str]:
        """Return the names of what is in the folder and was not written by a cache, which is never removed."""
        with contextlib.suppress(OSError):
            return [name for name in sorted(os.listdir(self.folder)) if not self._is_known(name)]
        return []

    def _is_known(self, name: str) -> bool:
        if name == _MARKER:
            return self._is_marked()
        return self._is_unfinished(name) or EntryRecord.read(self.folder / name, name) is not None

    def _names(self) -> list[str]:
        with contextlib.suppress(OSError):
            return [name for name in os.listdir(self.folder) if _NAME.fullmatch(name)]
        return []

    def _drop(self, name: str) -> None:
        entry, record = self.folder / name, EntryRecord.read(self.folder / name, name)
        if record is not None and record.is_all(entry):
            with contextlib.suppress(OSError):
                # Another process may write a new entry of this name meanwhile.
                removed = entry.with_name(_unfinished_name(name))
                os.rename(entry, removed)
                EntryRecord("", {}, None).write(removed, removed.name)  # for the next process, if this one is killed
                shutil.rmtree(removed, ignore_errors=True)

    def _is_marked(self) -> bool:
        """Whether the folder carries the marker, or another process is writing it just now."""
        with contextlib.suppress(OSError):
            return _MARK.startswith(read_own(self.folder / _MARKER, len(_MARK) + 1))
        return False

    def _is_ready(self) -> bool:
        """Create and mark the folder; return whether it may be used."""
        if self.folder.exists() and self._is_marked():
            return True
        self._make()
        if self.refusal():  # it appeared meanwhile
            return False
        with contextlib.suppress(FileExistsError), open(os.open(self.folder / _MARKER, NEW, 0o600), "wb") as file:
            file.write(_MARK)
        return self._is_marked()

    def _make(self) -> None:
        missing = [level for level in (self.folder, *self.folder.parents) if not os.path.lexists(level)]
        for level in reversed(missing):
            with contextlib.suppress(FileExistsError):
                level.mkdir(mode=0o700)

    def _adopted(self, names: list[str]) -> bool:
        """Mark a folder that an earlier version left, with its entries; return whether there is nothing else in it.

        Its entries have no record of their files, and get one, so that they go in their turn.
        """
        found = {name: about_earlier(self.folder / name) for name in names if _NAME.fullmatch(name)}
        if len(found) < len(names) or None in found.values():
            return False
        with contextlib.suppress(OSError):
            for name, about in found.items():
                EntryRecord(str(about), {}, closed(self.folder / name)).write(self.folder / name, name)
            with open(os.open(self.folder / _MARKER, NEW, 0o600), "wb") as file:
                file.write(_MARK)
        return self._is_marked()

    @contextlib.contextmanager
    def _unfinished(self, name: str) -> Iterator[Path]:
        """Make a folder for an entry, which is locked until the block ends, and removed unless it was renamed."""
        made = self.folder / _unfinished_name(name)
        made.mkdir(mode=0o700)
        try:
            descriptor = os.open(made, os.O_RDONLY) if os.name != "nt" else -1
            try:
                if descriptor >= 0:
                    hold(descriptor)
                EntryRecord("", {}, None).write(made, made.name)
                yield made
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _evict(self, newest: str) -> None:
        """Remove the least recently used entries beyond the size, but not the newest one, which would never stay."""
        entries = self.entries()
        total = sum(entry.bytes for entry in entries)
        for entry in entries:
            if total <= self.most:
                break
            if entry.key != newest:
                self.drop(entry.key)
                total -= entry.bytes
        self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        """Remove what a killed process was writing or removing."""
        with contextlib.suppress(OSError):
            foreign = [name for name in os.listdir(self.folder) if not self._is_unfinished(name)]
            remove_orphans(self.folder, _UNFINISHED, keep=foreign)

    def _is_unfinished(self, name: str) -> bool:
        """Whether an entry that is written or removed has this name."""
        record = EntryRecord.read(self.folder / name, name) if _UNFINISHED.fullmatch(name) else None
        return record is not None and record.files is None


def _name(key: str, part: str) -> str:
    return f"{key}-{part}" if part else key


def _unfinished_name(name: str) -> str:
    return f"unfinished-{name}-{secrets.token_hex(8)}"
