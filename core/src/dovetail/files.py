"""Files that are whole or as they were: written beside their target and renamed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dovetail.errors import DovetailError

__all__ = ["named", "replacing", "write_text"]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `path` when the block ends well, and vanishes otherwise.

    The folder is made.

    Raises:
        DovetailError: The folder cannot be written to, or the disk is full.
    """
    partial = path.with_name(f".{path.name}.partial")
    with named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                yield file
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise


def write_text(path: Path, text: str) -> None:
    """Write `text` as a whole, or leave `path` as it was.

    Raises:
        DovetailError: The folder cannot be written to, or the disk is full.
    """
    with replacing(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Say of `path` what the operating system says of a file of its own."""
    try:
        yield
    except OSError as error:
        raise DovetailError(
            f"{path} could not be written: {error.strerror or error}",
            "free some space or name another folder; nothing there was changed",
        ) from error
