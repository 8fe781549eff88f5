"""Input files: whatever a result may follow from is read through this module, so that caches know what was read.

    with recorded() as reading:
        ...  # np.load(seen(path)), in whatever thread
    reading.files  # every file that was named, with its state at that moment

Recording is a matter of the whole process, not of a context: work is divided among threads of many kinds. What another
thread reads meanwhile is noted as well, which costs a compilation at worst; a file that is forgotten would bring back a
result that is not right any more.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from dovetail.errors import DovetailError

_Named = TypeVar("_Named")


class FileState(NamedTuple):
    """What the operating system says of a file; it changes whenever the content does.

    Attributes:
        size: Bytes.
        modified: When it was written, in nanoseconds; programs can set that.
        changed: When anything of it changed, its time included, which programs cannot set.
        inode: Its number.
        device: The file system.
    """

    size: int
    modified: int
    changed: int
    inode: int
    device: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        """Return the state that a call of `stat` reports."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)


FOLDER = FileState(-1, 0, 0, 0, 0)
"""Stands for the state of a folder, of which only the existence counts; `entries` lists what is in it."""


class Reading:
    """What was read during a recording.

    Attributes:
        files: The state of every file when it was first read, by absolute path; None where there was none.
        folders: The names in every folder that was listed, by absolute path.
        objects: What identifies the content of every object of another file system, by its URL.
        doubt: Why a part of it may be wrong; empty if nothing is.
    """

    def __init__(self) -> None:
        self.files: dict[str, FileState | None] = {}
        self.folders: dict[str, tuple[str, ...]] = {}
        self.objects: dict[str, str] = {}
        self.doubt = ""

    def _note(self, path: str) -> None:
        state = file_state(path)
        if self.files.setdefault(path, state) != state:
            self.doubt = f"{path} changed while it was read"

    def _list(self, folder: str, names: tuple[str, ...]) -> None:
        if self.folders.setdefault(folder, names) != names:
            self.doubt = f"{folder} changed while it was read"


_readings: list[Reading] = []
_lock = threading.Lock()


@contextlib.contextmanager
def recorded() -> Iterator[Reading]:
    """Record what this process reads, in all of its threads, while the block runs."""
    reading = Reading()
    with _lock:
        _readings.append(reading)
    try:
        yield reading
    finally:
        with _lock:
            _readings.remove(reading)


def seen(path: _Named) -> _Named:
    """Return a path, or a file in a package, that is opened or looked for next; a recording notes its state.

    A file that is not there is noted as well: a result may follow from that.
    """
    if _readings and isinstance(path, (str, os.PathLike)):
        place = os.path.abspath(str(path))
        with _lock:
            for reading in _readings:
                reading._note(place)
    return path


def entries(folder: Path) -> list[Path]:
    """Return what is in a folder, in order; a recording notes the names.

    Raises:
        OSError: It cannot be read.
    """
    names = sorted(os.listdir(folder))
    with _lock:
        for reading in _readings:
            reading._list(os.path.abspath(folder), tuple(names))
    return [folder / name for name in names]


def seen_object(url: str, identity: Callable[[], str]) -> None:
    """Note an object of another file system, or a folder of them.

    Args:
        url: Its URL.
        identity: Returns what identifies the content.
    """
    if _readings:
        found = identity()
        with _lock:
            for reading in _readings:
                if reading.objects.setdefault(url, found) != found:
                    reading.doubt = f"{url} changed while it was read"


_POINTER = b"version https://git-lfs.github.com/spec/"


def unfetched(path: str | os.PathLike[str]) -> DovetailError | None:
    """Return the error for a file that is a pointer of Git LFS, which stands for one that was not fetched; else None.

    Source: the specification of Git LFS, docs/spec.md; a pointer has less than 1024 bytes.
    """
    try:
        with open(path, "rb") as file:
            found = file.read(len(_POINTER)) == _POINTER
    except (OSError, ValueError):
        return None
    if not found:
        return None
    return DovetailError(
        f"{path} is a pointer of Git LFS, and not the file that it stands for",
        "fetch that: `git lfs install && git lfs pull` in the repository, or download the file from its page",
    )


def file_state(path: str | os.PathLike[str]) -> FileState | None:
    """Return the state of a file, `FOLDER` for a folder; None if there is neither."""
    try:
        status = os.stat(path)
        return FOLDER if stat.S_ISDIR(status.st_mode) else FileState.of(status)
    except (OSError, ValueError):  # missing, or a name that no file has
        return None
