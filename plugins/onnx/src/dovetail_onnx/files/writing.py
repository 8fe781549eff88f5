"""Atomic writing of files: under an unguessable temporary name, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin import hold, remove_orphans

if TYPE_CHECKING:
    import numpy as np

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@contextlib.contextmanager
def replacing_file(path: Path, final: Callable[[], Path] | None = None) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block succeeds, and is removed otherwise.

    The folder is created. A link at `path` is replaced, not its target. A device or a pipe cannot be replaced, and is
    written to directly.

    Args:
        path: The file to replace or to create.
        final: Called at the end of the block for the actual file to replace, if its name depends on its content.

    Raises:
        DovetailError: `path` is a folder, its folder cannot be written to, or the disk is full.
    """
    path = Path(path)
    if path.is_dir():
        raise DovetailError(f"{path} is a folder", "name a file")
    if path.exists() and (not path.is_file() or path.parent == Path("/dev")):
        with named(path), path.open("wb") as file:
            yield file
        return
    with named(path), created_folders(path.parent):
        remove_orphans(path.parent, re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.partial"))
        partial, descriptor = _new_file(path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                sync(descriptor)
                if os.name != "nt":
                    partial.replace(final() if final else path)
            if os.name == "nt":  # Windows cannot rename open files
                partial.replace(final() if final else path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise


def write_text(path: Path, text: str) -> None:
    """Write `text` atomically.

    Raises:
        DovetailError: The folder cannot be written to, or the disk is full.
    """
    with replacing_file(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Convert operating system errors inside the block to errors about `path`."""
    try:
        yield
    except OSError as error:
        raise DovetailError(
            f"{path} could not be written: {error.strerror or error}",
            "free some space or name another folder; nothing there was changed",
        ) from error


@contextlib.contextmanager
def created_folders(folder: Path) -> Iterator[None]:
    """Create `folder` and its parents; those created are removed again if the block fails."""
    missing = []
    for level in (folder, *folder.parents):
        if level.exists():
            break
        if level.is_symlink():
            raise DovetailError(
                f"{level} is a link to {os.readlink(level)}, which does not exist", "make that folder first"
            )
        missing.append(level)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for level in missing:
            with contextlib.suppress(OSError):
                level.rmdir()
        raise


_scratch: ContextVar[bool] = ContextVar("dovetail_scratch_files", default=False)


@contextlib.contextmanager
def scratch_files() -> Iterator[None]:
    """Mark files that are written inside of the block as scratch: nobody needs them after a crash of the machine."""
    token = _scratch.set(True)
    try:
        yield
    finally:
        _scratch.reset(token)


def sync(descriptor: int) -> None:
    """Flush an open file to disk before a name points to it, unless it is scratch."""
    if _scratch.get():
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise


def sync_folder(folder: Path) -> None:
    """Flush the names in `folder` to disk, if the operating system supports that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _new_file(path: Path) -> tuple[Path, int]:
    """Create a file next to `path`, with its descriptor; an existing file, such as a planted link, is never opened."""
    while True:
        partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
        descriptor = os.open(partial, _NEW, 0o666)
        # Another writer may have removed it as an orphan before the lock was taken.
        if hold(descriptor) is not False and partial.exists():
            return partial, descriptor
        os.close(descriptor)


def write_array(path: Path, array: np.ndarray) -> None:
    """Write an array as an `.npy` file. Unlike `np.save`, the error says why nothing more can be written.

    Raises:
        OSError: It cannot be written; with the reason of the operating system.
    """
    import numpy as np

    held = np.asarray(array, order="C")
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(held))
        file.write(held.reshape(-1).view(np.uint8).data)
