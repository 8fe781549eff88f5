"""Files that a user names as input: regular files of a bounded size, and nothing else.

A pipe without a writer blocks forever, a device such as `/dev/zero` never ends, and a file of 100 GB fills memory
before anybody looks at it. So every file that is read as a whole is opened here.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

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
