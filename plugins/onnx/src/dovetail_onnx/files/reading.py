"""Input files named by a user: bounded reading of regular files, access within a folder, and digests."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from dovetail.errors import DovetailError
from dovetail.files import seen

LARGEST_TEXT = 32 << 20
"""Bytes; far more than any configuration or table, and YAML of this size takes a minute to parse.
"""

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


class UnreadableInput(DovetailError):
    """Raised if an input file cannot be read.

    Args:
        path: Its path.
        problem: What is wrong, without the path.
        hint: A hint to fix it.
    """

    def __init__(self, path: Path, problem: str, hint: str = "name a file that can be read"):
        self.problem = problem
        super().__init__(f"{path}: {problem}", hint)


def check_input(path: Path) -> None:
    """Check that a path is a regular file, for libraries that open it by name.

    Raises:
        UnreadableInput: The file is missing or not a regular file, or its path cannot be resolved.
    """
    with _named(path):
        _check(path, os.stat(seen(path)))


@contextlib.contextmanager
def open_input(path: Path) -> Iterator[io.BufferedReader]:
    """Open a regular file for reading.

    The check is on the opened file, not on its name, because another process may replace it in between. A pipe does not
    block.

    Raises:
        UnreadableInput: The file is missing, not a regular file, or cannot be read.
    """
    with _named(path):
        descriptor = os.open(seen(path), _READ)
        try:
            _check(path, os.fstat(descriptor))
            file = os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
    with file:
        yield file


def read_input(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    """Read a regular file of at most `largest` bytes.

    Raises:
        UnreadableInput: The file is missing, not a regular file, larger, or cannot be read.
    """
    with open_input(path) as file, _named(path):
        # Do not query the size: files below /proc have none, and others grow.
        content = file.read(largest + 1)
    if len(content) > largest:
        raise UnreadableInput(path, f"larger than {_size(largest)}", "name another file")
    return content


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # no permission, or a name that is too long or contains NUL
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
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class LinkError(OSError):
    """Raised if a component of a path is a link or not a folder, or the file is a link or not a regular file."""


def open_inside(folder: Path, name: str) -> io.BufferedReader:
    """Open a regular file for reading.

    Raises:
        FileNotFoundError: It is missing.
        LinkError: It is not a regular file, or the path contains a link.
        OSError: It cannot be read.
    """
    seen(folder / name)
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
    """Check whether a path without links leads to a regular file."""
    try:
        with _parent(folder, name) as (at, last):
            return stat.S_ISREG(os.stat(last, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def move_inside(source: Path, folder: Path, name: str) -> None:
    """Move a file from one folder to the same name in another one, creating inner folders.

    An existing file is replaced; a link is replaced, not its target.

    Raises:
        FileNotFoundError: `source` has no such file.
        LinkError: The path contains a link, in either folder.
        OSError: The file cannot be moved.
    """
    with _parent(source, name) as (before, last), _parent(folder, name, make=True) as (at, _):
        if at is None or before is None:
            (source / name).replace(folder / name)
        else:
            os.replace(last, last, src_dir_fd=before, dst_dir_fd=at)


def remove_inside(folder: Path, name: str) -> None:
    """Remove a file, or a link but not its target.

    Raises:
        FileNotFoundError: It is missing.
        LinkError: The path contains a link.
        OSError: It cannot be removed.
    """
    with _parent(folder, name) as (at, last):
        os.unlink(last, dir_fd=at)


def remove_folders_inside(folder: Path, name: str) -> None:
    """Remove the inner folders of a path if they are empty."""
    for parent in list(PurePosixPath(name).parents)[:-1]:
        with contextlib.suppress(OSError), _parent(folder, parent.as_posix()) as (at, last):
            os.rmdir(last, dir_fd=at)


@contextlib.contextmanager
def _parent(folder: Path, name: str, make: bool = False) -> Iterator[tuple[int | None, str]]:
    """Open the folder that contains a name; yield its descriptor and the last component of the name.

    If folders cannot be opened (Windows), there is no descriptor, and the name is the whole path.
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
