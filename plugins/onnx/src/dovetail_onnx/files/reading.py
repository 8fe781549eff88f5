"""Files that a user names as input: regular files of a bounded size, inside their folder, and their digests."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from dovetail.errors import DovetailError

LARGEST_TEXT = 32 << 20
"""Bytes; no configuration or table that a person or a tool writes comes near, and YAML of this size takes a minute."""

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


class UnreadableInput(DovetailError):
    """A file that a user names cannot be read.

    Args:
        path: Its path.
        problem: What is wrong, without the path.
        hint: The way out.
    """

    def __init__(self, path: Path, problem: str, hint: str = "name a file that can be read"):
        self.problem = problem
        super().__init__(f"{path}: {problem}", hint)


def check_input(path: Path) -> None:
    """Refuse what is not a regular file, for libraries that open it by name.

    Raises:
        UnreadableInput: Nothing is there, something else, or its path cannot be followed.
    """
    with _named(path):
        _check(path, os.stat(path))


@contextlib.contextmanager
def open_input(path: Path) -> Iterator[io.BufferedReader]:
    """Open a regular file for reading.

    What was opened is checked, not its name: another process may replace the file in between. A pipe does not block.

    Raises:
        UnreadableInput: Nothing is there, something else, or it cannot be read.
    """
    with _named(path):
        descriptor = os.open(path, _READ)
        try:
            _check(path, os.fstat(descriptor))
            file = os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
    with file:
        yield file


def read_input(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    """The content of a regular file of at most `largest` bytes.

    Raises:
        UnreadableInput: Nothing is there, something else, it cannot be read, or it is larger.
    """
    with open_input(path) as file, _named(path):
        # The size is not asked for: files below /proc have none, and others grow.
        content = file.read(largest + 1)
    if len(content) > largest:
        raise UnreadableInput(path, f"larger than {_size(largest)}", "name another file")
    return content


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # no permission, a name that is too long or holds a NUL
        reason = getattr(error, "strerror", None) or error
        raise UnreadableInput(path, f"cannot be read: {reason}") from None


def _check(path: Path, status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        hint = "name a file in it" if kind == stat.S_IFDIR else "copy its content into a file first"
        raise UnreadableInput(path, f"{_KINDS.get(kind, 'something else')}, not a regular file", hint)


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count} bytes"


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class LinkError(OSError):
    """Something on the way to a file is a link or no folder, or the file is a link or no regular file."""


def open_inside(folder: Path, name: str) -> io.BufferedReader:
    """Open a regular file for reading.

    Raises:
        FileNotFoundError: It is missing.
        LinkError: It is no regular file, or a link is on the way.
        OSError: It cannot be read.
    """
    with _parent(folder, name) as (at, last):
        descriptor = _opened(last, _FILE, at)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LinkError(f"{folder / name} is no regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise


def is_file_inside(folder: Path, name: str) -> bool:
    """Whether it is a regular file that no link leads to."""
    try:
        with _parent(folder, name) as (at, last):
            return stat.S_ISREG(os.stat(last, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def move_inside(source: Path, folder: Path, name: str) -> None:
    """Move a file from one folder to the same name in another one, whose inner folders are made.

    What has the name there is replaced; a link is replaced, and what it points to stays as it is.

    Raises:
        FileNotFoundError: `source` has no such file.
        LinkError: A link is on the way, in one folder or the other.
        OSError: The file cannot be moved.
    """
    with _parent(source, name) as (before, last), _parent(folder, name, make=True) as (at, _):
        if at is None or before is None:
            (source / name).replace(folder / name)
        else:
            os.replace(last, last, src_dir_fd=before, dst_dir_fd=at)


def remove_inside(folder: Path, name: str) -> None:
    """Remove a file, or a link instead of what it points to.

    Raises:
        FileNotFoundError: It is missing.
        LinkError: A link is on the way.
        OSError: It cannot be removed.
    """
    with _parent(folder, name) as (at, last):
        os.unlink(last, dir_fd=at)


def remove_folders_inside(folder: Path, name: str) -> None:
    """Remove the inner folders on the way to a name, as far as they are empty."""
    for parent in list(PurePosixPath(name).parents)[:-1]:
        with contextlib.suppress(OSError), _parent(folder, parent.as_posix()) as (at, last):
            os.rmdir(last, dir_fd=at)


@contextlib.contextmanager
def _parent(folder: Path, name: str, make: bool = False) -> Iterator[tuple[int | None, str]]:
    """The open folder that a name is in, with the last part of the name.

    Where folders cannot be opened (Windows) there is no descriptor, and the name is the whole path.
    """
    *inner, last = PurePosixPath(name).parts
    if not _BY_DESCRIPTOR:
        path = folder
        for part in inner:
            path = path / part
            if make:
                path.mkdir(exist_ok=True)
            if path.is_symlink() or path.exists() and not path.is_dir():
                raise LinkError(f"{path} is no folder")
        yield None, str(folder / name)
        return
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in inner:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
            inside = _opened(part, _FOLDER, at)
            os.close(at)
            at = inside
        yield at, last
    finally:
        os.close(at)


def _opened(part: str, flags: int, at: int | None) -> int:
    try:
        if at is None and Path(part).is_symlink():
            raise LinkError(f"{part} is a link")
        return os.open(part, flags, dir_fd=at)
    except FileNotFoundError:
        raise
    except OSError as error:  # ELOOP or ENOTDIR
        raise LinkError(error.errno, f"{part} is a link, or no folder or file that can be read") from error
