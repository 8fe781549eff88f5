"""Records of entries of caches: which folder it is, and which files were written into it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ABOUT, FILES = "about.json", "files"
"""The record in the folder of an entry, and the folder of its files."""

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
"""Flags that make a file and follow no link."""

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_LARGEST = 64 << 20  # bytes
_WRITER = "dovetail cache 1"
_FOLDER = -1  # in place of a size


@dataclass(frozen=True)
class EntryRecord:
    """What `about.json` says of the folder that it is in.

    Attributes:
        about: What it is, for people.
        facts: Plain data.
        files: Its other files with their sizes, and -1 for each folder; None while they are being written.
    """

    about: str
    facts: dict[str, Any]
    files: dict[str, int] | None

    @property
    def bytes(self) -> int:
        """The bytes of its files."""
        return sum(size for size in (self.files or {}).values() if size != _FOLDER)

    @classmethod
    def read(cls, folder: Path, name: str) -> EntryRecord | None:
        """Read the record of a folder; None if it is not a folder that a cache wrote under this name."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            if not stat.S_ISDIR(folder.lstat().st_mode):
                return None
            told = json.loads(read_own(folder / ABOUT, _LARGEST))
            if told["writer"] == _WRITER and told["name"] == name:
                files = told["files"]
                sizes = None if files is None else {str(name): int(size) for name, size in files.items()}
                return cls(str(told["about"]), dict(told["facts"]), sizes)
        return None

    def write(self, folder: Path, name: str) -> None:
        """Write the record into a new folder, and flush it to disk: without it, the folder could not be removed."""
        told = {"writer": _WRITER, "name": name, "about": self.about, "facts": self.facts, "files": self.files}
        made = folder / f"{ABOUT}.{secrets.token_hex(8)}"
        with open(os.open(made, NEW, 0o600), "wb") as file:
            file.write(json.dumps(told).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, folder / ABOUT)

    def is_whole(self, folder: Path) -> bool:
        """Whether all files are there, in their sizes."""
        with contextlib.suppress(OSError):
            statuses = ((os.lstat(folder / name), size) for name, size in (self.files or {}).items())
            return self.files is not None and all(_size(status) == size for status, size in statuses)
        return False

    def is_all(self, folder: Path) -> bool:
        """Whether nothing else is in the folder: no other file, no link, and no other folder."""
        known = {ABOUT: 0, **(self.files or {})}
        with contextlib.suppress(OSError):
            found = ((known.get(name), _size(status)) for name, status in _content(folder))
            return all(None not in both and (_FOLDER in both) == (both[0] == both[1] == _FOLDER) for both in found)
        return False


def read_own(path: Path, most: int) -> bytes:
    """Read a regular file, which no link leads to.

    Raises:
        OSError: It is missing or something else.
    """
    with open(os.open(path, _READ), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(most)


def _size(status: os.stat_result) -> int | None:
    """Return the size of a regular file, -1 for a folder, and None for anything else, such as a link."""
    if stat.S_ISDIR(status.st_mode):
        return _FOLDER
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _content(folder: Path, within: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield what is in a folder, by its path in it; no links are followed."""
    with os.scandir(folder / within) as found:
        entries = list(found)
    for entry in entries:
        name = f"{within}/{entry.name}" if within else entry.name
        yield name, entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield from _content(folder, name)


def closed(folder: Path) -> dict[str, int]:
    """Return the sizes of what was written into a folder, and leave it to this user alone.

    Raises:
        OSError: Something else was written, such as a link.
    """
    found = list(_content(folder))
    links = Counter(status.st_ino for _, status in found)
    sizes: dict[str, int] = {}
    for name, status in found:
        size = _size(status)
        if size is None:
            raise OSError(f"{folder / name} is neither a file nor a folder")
        if size == _FOLDER or status.st_nlink == links[status.st_ino]:  # else it is a file of somebody else, too
            (folder / name).chmod(0o700 if size == _FOLDER else 0o600)
        if name != ABOUT:
            sizes[name] = size
    return sizes


def about_earlier(entry: Path) -> str | None:
    """Return what an entry of an earlier version is, for people; None if it is not one."""
    known = EntryRecord.read(entry, entry.name)
    if known is not None:  # a process that was killed while it adopted the folder
        return known.about
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        told = json.loads(read_own(entry / ABOUT, _LARGEST))
        inside = set(os.listdir(entry)) - {ABOUT, FILES}
        starts = {told["facts"]["start"]["folder"]} if "start" in told["facts"] else set()
        kinds = [stat.S_ISDIR((entry / name).lstat().st_mode) for name in ("", FILES) if os.path.lexists(entry / name)]
        if told.keys() == {"about", "facts"} and inside <= starts and all(kinds):
            return str(told["about"])
    return None
