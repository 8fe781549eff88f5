"""Data files that are written over several runs: the output of a killed process is kept for the same request.

A folder `.dovetail-unfinished-<digest>` in the output holds the bytes, and a journal with a line for each weight that
is complete. The digest is that of the request, the source, the versions and the graph. The next writer of the same
checks the bytes and continues after them; a writer of another result removes them when it is done. A receipt says that
a process of this user made the folder: a folder of somebody else is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, NamedTuple

from dovetail.plugin import hold, remove_orphans

from dovetail_onnx.files.parsing import Malformed, parse_json
from dovetail_onnx.files.receipts import discard_receipt, has_receipt, leave_receipt
from dovetail_onnx.files.writing import replacing_file, sync

RESUMABLE_ABOVE = 1 << 26
"""Minimum bytes of weights; smaller data is written again."""

UNFINISHED = re.compile(r"\.dovetail-unfinished-[0-9a-f]{32}")
"""Names of the folders."""

_DATA, _JOURNAL = "weights.data", "journal.jsonl"
_LONGEST = 1 << 26  # bytes of a journal
_CHUNK = 1 << 22  # bytes


class _Place(NamedTuple):
    """Where unfinished files are kept, and the function that identifies them."""

    folder: Path
    identity: Callable[[], Mapping[str, Any] | None]


_place: ContextVar[_Place | None] = ContextVar("unfinished", default=None)


@contextlib.contextmanager
def resuming(folder: Path, identity: Callable[[], Mapping[str, Any] | None] = lambda: None) -> Iterator[None]:
    """Keep large data files that are written in the block in a folder if this process is killed.

    Inside of another such block, its folder is used: that is the one which the user named. Where the outermost block
    succeeds, what earlier processes left there is removed.

    Args:
        folder: The output.
        identity: Returns everything that the bytes depend on except the graph, as plain data; None keeps nothing. It is
            called only for large data files, because finding out reads the source.
    """
    outer = _place.get()
    token = _place.set(_Place(folder if outer is None else outer.folder, identity))
    try:
        yield
    finally:
        _place.reset(token)
    if outer is None:
        remove_orphans(folder, UNFINISHED)


@contextlib.contextmanager
def data_file(path: Path, final: Callable[[str], Path], size: int, graph: bytes) -> Iterator[DataFile]:
    """Open a data file, which takes its place when the block succeeds.

    Args:
        path: The model that it belongs to.
        final: Returns its path, given the digest of its content.
        size: The bytes of the weights, about.
        graph: The model without its weights.
    """
    place = _place.get()
    large = place is not None and size >= RESUMABLE_ABOVE and os.name != "nt"
    identity = place.identity() if place is not None and large else None
    if place is not None and identity is not None:
        described = json.dumps(dict(identity), sort_keys=True).encode() + b"\n" + graph
        folder = place.folder / f".dovetail-unfinished-{hashlib.sha256(described).hexdigest()[:32]}"
        descriptor = _claimed(folder)
        if descriptor is not None:
            try:
                with _unfinished(folder, final) as found:
                    yield found
            finally:
                os.close(descriptor)
            return
    made: list[DataFile] = []
    with replacing_file(path, lambda: final(made[0].digest.hexdigest())) as file:
        made.append(DataFile(file))
        yield made[0]


def _claimed(folder: Path) -> int | None:
    """Create or take over a folder, and lock it; None if another process writes to it, or somebody else made it.

    None on Windows, too, where folders cannot be locked.
    """
    if os.name == "nt":
        return None
    with contextlib.suppress(OSError):
        if not has_receipt(folder):
            folder.mkdir(mode=0o700, parents=True)
            leave_receipt(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
        if hold(descriptor) and has_receipt(folder):
            return descriptor
        os.close(descriptor)
    return None


@contextlib.contextmanager
def _unfinished(folder: Path, final: Callable[[str], Path]) -> Iterator[DataFile]:
    known = _entries(folder / _JOURNAL)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        with (
            os.fdopen(os.open(folder / _DATA, flags, 0o666), "r+b") as file,
            (folder / _JOURNAL).open("w", encoding="utf-8") as journal,
        ):
            found = DataFile(file, journal, known)
            yield found
            file.truncate(found.size)
            file.flush()
            sync(file.fileno())
        (folder / _DATA).replace(final(found.digest.hexdigest()))
    except Exception:
        _discard(folder)
        raise
    _discard(folder)


def _discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    discard_receipt(folder)


class CompleteWeight(NamedTuple):
    """A weight that is complete.

    Attributes:
        name: Its name.
        begin: Where its bytes begin.
        length: Their number.
        sha256: The digest of the file up to their end.
        again: Whether it has to be computed again, because its conversion also finds something that is reported.
    """

    name: str
    begin: int
    length: int
    sha256: str
    again: bool


def _entries(path: Path) -> list[CompleteWeight]:
    """Return the lines of a journal up to one that is cut off."""
    found: list[CompleteWeight] = []
    with contextlib.suppress(OSError):
        if path.is_symlink() or path.stat().st_size > _LONGEST:
            return []
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                match parse_json(line):
                    case [str(name), int(begin), int(length), str(digest), bool(again)]:
                        found.append(CompleteWeight(name, begin, length, digest, again))
                    case _:
                        break
            except Malformed:
                break
    return found


class DataFile:
    """A file that is written from its beginning, weight by weight.

    Args:
        file: The file.
        journal: Where complete weights are noted, or None.
        known: The weights that an earlier run has written.

    Attributes:
        size: Bytes so far.
        digest: SHA-256 of them.
    """

    def __init__(self, file: IO[bytes], journal: IO[str] | None = None, known: list[CompleteWeight] | None = None):
        self._file, self._journal = file, journal
        self._known = list(reversed(known or []))
        self.size, self.digest = 0, hashlib.sha256()

    def write(self, chunk: bytes | memoryview) -> None:
        """Write further bytes."""
        self._file.write(chunk)
        self.digest.update(chunk)
        self.size += len(chunk)

    def has(self, name: str, length: int) -> bool:
        """Skip a weight if an earlier run has written it; return whether it has.

        Args:
            name: Its name.
            length: Its bytes.
        """
        if not self._known:
            return False
        entry, digest, left = self._known.pop(), self.digest.copy(), length
        if entry[:3] == (name, self.size, length):
            while left and (chunk := self._file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
        if left or digest.hexdigest() != entry.sha256 or entry.again:
            if left or digest.hexdigest() != entry.sha256:
                self._known.clear()
            self._file.seek(self.size)
            return False
        self.size, self.digest = self.size + length, digest
        self._note(entry)
        return True

    def complete(self, name: str, length: int, again: bool) -> None:
        """Note that the bytes of a weight have been written.

        Args:
            name: Its name.
            length: Its bytes.
            again: See `CompleteWeight`.
        """
        if self._journal is not None:
            self._file.flush()
            self._note(CompleteWeight(name, self.size - length, length, self.digest.hexdigest(), again))

    def _note(self, entry: CompleteWeight) -> None:
        if self._journal is not None:
            self._journal.write(json.dumps(entry) + "\n")
            self._journal.flush()


def identity_of_files(files: Mapping[str, Path]) -> dict[str, Any]:
    """Return sizes, times and samples of the content of files; reading gigabytes would take as long as writing them.

    Args:
        files: The files, by a name each.

    Raises:
        OSError: One cannot be read.
    """
    found = {}
    for name, path in sorted(files.items()):
        status, digest = path.stat(), hashlib.sha256()
        with path.open("rb") as file:
            for part in range(_SAMPLES):
                file.seek(max(0, status.st_size - _SAMPLE) * part // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
        found[name] = [str(path.resolve()), status.st_size, status.st_mtime_ns, digest.hexdigest()]
    return found


_SAMPLES, _SAMPLE = 33, 1 << 16  # their number, and the bytes of each
