"""What a result was made of: the files, folders and remote objects that were read, each with a digest of its content.

A large file that is as it was is not read again: size, times, inode and device are kept next to its digest. Programs
can set back the time of a file, but not the time of that change, unless the file system does not keep it. So a state
counts on file systems that keep it; only if it was two seconds old when the content was hashed, because times are
coarse; and only together with a sample of the content, because images of file systems may have equal times and inodes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dovetail.files import FOLDER, FileState, Reading, file_state
from dovetail.plugin import is_temporary
from dovetail_onnx.files.source_state import source_folders

_SETTLED = 2_000_000_000  # nanoseconds
_SMALL = 1 << 16  # bytes, which are hashed as fast as they are sampled
_SAMPLES, _SAMPLE = 16, 1 << 12  # their number, and the bytes of each
_KEEP_CHANGES = frozenset({
    "bcachefs", "btrfs", "ceph", "ext2", "ext3", "ext4", "f2fs", "gpfs", "lustre", "nfs", "nfs4", "overlay", "tmpfs",
    "virtiofs", "xfs", "zfs",
})  # fmt: skip
"""File systems that set the time of a change themselves."""
_OCTAL = re.compile(r"\\([0-7]{3})")


class Unsettled(Exception):
    """What was read cannot be recognized again."""


class ReadFile(NamedTuple):
    """A file that was read.

    Attributes:
        path: Its absolute path.
        digest: The SHA-256 of its content; empty if there is no file, `folder` if it is a folder.
        state: Its state, if content need not be read while it stays; else None.
        sample: A digest of parts of it.
    """

    path: str
    digest: str
    state: FileState | None = None
    sample: str = ""


class ReadFiles(NamedTuple):
    """What a result was made of.

    Attributes:
        files: The files.
        folders: Folders that were listed, with a digest of the names in each.
        objects: Objects of other file systems, with what identifies the content of each.
    """

    files: tuple[ReadFile, ...]
    folders: tuple[tuple[str, str], ...] = ()
    objects: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, reading: Reading, further: Iterable[Path] = (), packages: Sequence[str] = ()) -> ReadFiles:
        """Hash what was read.

        Args:
            reading: What was read.
            further: Files that count as well.
            packages: Top-level packages whose files are recognized otherwise.

        Raises:
            Unsettled: Something changed meanwhile, or cannot be read.
        """
        if reading.doubt:
            raise Unsettled(reading.doubt)
        states = {os.path.abspath(path): file_state(path) for path in further} | reading.files
        known = tuple(f"{folder}{os.sep}" for folder in source_folders(tuple(packages)))
        paths = (path for path in (*states, *reading.folders) if not path.startswith(known))
        counting = {path for path in paths if not is_temporary(path)}
        files = []
        for path in sorted(counting & states.keys()):
            found, state = _hashed(path)
            if state != states[path]:
                raise Unsettled(f"{path} changed while it was read")
            files.append(found)
        folders = ((path, _names(names)) for path, names in sorted(reading.folders.items()) if path in counting)
        return cls(tuple(files), tuple(folders), tuple(sorted(reading.objects.items())))

    @classmethod
    def from_plain(cls, told: Any) -> ReadFiles:
        """Return what `as_plain` returned.

        Raises:
            ValueError, TypeError, KeyError: It is damaged.
        """
        files = (
            ReadFile(path, digest, known and FileState(*known), part) for path, digest, known, part in told["files"]
        )
        folders, objects = (tuple((str(one), str(other)) for one, other in told[key]) for key in ("folders", "objects"))
        return cls(tuple(files), folders, objects)

    def as_plain(self) -> dict[str, Any]:
        """Return plain data."""
        return self._asdict()

    @property
    def digest(self) -> str:
        """A digest of the content of all of it, whatever the states of files are."""
        told = [[(one.path, one.digest) for one in self.files], self.folders, self.objects]
        return hashlib.sha256(json.dumps(told).encode("utf-8", "surrogateescape")).hexdigest()

    def now(self) -> ReadFiles | None:
        """Return the same with the present states; None if any content is another one, or cannot be read."""
        try:
            files = tuple(one if _is_as_it_was(one) else _again(one) for one in self.files)
            if any(_names(sorted(os.listdir(folder))) != names for folder, names in self.folders):
                return None
            if any(_identity(url) != identity for url, identity in self.objects):
                return None
        except (OSError, Unsettled):
            return None
        return self._replace(files=files)


def _is_as_it_was(one: ReadFile) -> bool:
    """Whether a file has the state of before, so that its content needs no reading."""
    if one.state is None:
        return False
    with open(one.path, "rb") as file:
        state = FileState.of(os.fstat(file.fileno()))
        return state == one.state and _sampled(file.fileno(), state.size) == one.sample


def _again(one: ReadFile) -> ReadFile:
    """Return a file with its present state.

    Raises:
        Unsettled: It has another content.
    """
    found, _ = _hashed(one.path)
    if found.digest != one.digest:
        raise Unsettled(f"{one.path} has changed")
    return found


def _hashed(path: str) -> tuple[ReadFile, FileState | None]:
    """Hash a file; return it with its state at that moment.

    Raises:
        Unsettled: It cannot be read, or changes.
    """
    state = file_state(path)
    if state is None or state == FOLDER:
        return ReadFile(path, "" if state is None else "folder"), state
    try:
        with open(path, "rb") as file:
            state = FileState.of(os.fstat(file.fileno()))  # also of what a network file system has cached
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if FileState.of(os.fstat(file.fileno())) != state:
                raise Unsettled(f"{path} changes")
            is_settled = state.size > _SMALL and time.time_ns() - state.changed > _SETTLED and _keeps_changes(path)
            if not is_settled:
                return ReadFile(path, digest), state
            return ReadFile(path, digest, state, _sampled(file.fileno(), state.size)), state
    except OSError as error:
        raise Unsettled(f"{path} cannot be read: {error}") from error


def _sampled(descriptor: int, size: int) -> str:
    digest = hashlib.sha256()
    for number in range(_SAMPLES):
        digest.update(os.pread(descriptor, _SAMPLE, max(0, size - _SAMPLE) * number // (_SAMPLES - 1)))
    return digest.hexdigest()


def _names(names: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()


def _identity(url: str) -> str:
    from dovetail.errors import DovetailError
    from dovetail_runtime.data.remote_files import remote_digest

    try:
        return remote_digest(url)
    except DovetailError as error:
        raise Unsettled(error.message) from error


def _keeps_changes(path: str) -> bool:
    """Whether the file system of a file sets the time of a change itself; False if that is not known."""
    real = os.path.realpath(path)
    kinds = (kind for place, kind in _mounts() if real == place or real.startswith(place.rstrip("/") + "/"))
    return next(kinds, "") in _KEEP_CHANGES


@cache
def _mounts() -> tuple[tuple[str, str], ...]:
    """Return where file systems are mounted, and their kinds, the innermost first; nothing where Linux does not say."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.split() for line in file]
    except OSError:
        return ()
    found = [
        (_OCTAL.sub(lambda match: chr(int(match[1], 8)), words[4]), words[words.index("-") + 1])
        for words in lines
        if "-" in words
    ]
    return tuple(sorted(found, key=lambda one: len(one[0]))[::-1])
