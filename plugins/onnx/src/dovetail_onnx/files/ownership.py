"""Ownership of temporary files and folders: whether a writer is alive, and what can be removed.

A writer locks its files; the kernel releases the lock when the process ends, however it ends. Hence a file that can be
locked has no writer. Process ids would be reused, and mean nothing on another machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a system without it


_ABANDONED_AFTER = 24 * 3600  # seconds, if files cannot be locked
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)


def hold(descriptor: int, wait: bool = False) -> bool | None:
    """Lock an open file or folder until it is closed or the process ends.

    Args:
        descriptor: The open file or folder.
        wait: Wait for the current holder.

    Returns:
        True if it is held now, False if another process holds it, None if locking is not supported.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def remove_orphans(folder: Path, name: re.Pattern[str], keep: Collection[str] = ()) -> None:
    """Remove the files and folders in `folder` whose whole name matches `name` and that have no writer any more.

    Names in `keep` are skipped. Links are left alone, and so are entries that cannot be removed.
    """
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if name.fullmatch(entry.name) and entry.name not in keep:
                with contextlib.suppress(OSError):
                    _remove_orphan(Path(entry.path))


def _remove_orphan(path: Path) -> None:
    status = path.lstat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return
    held = None
    if fcntl is not None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            held = hold(descriptor)
            if held:
                _remove(path)
        finally:
            os.close(descriptor)
    if held is None and time.time() - status.st_mtime > _ABANDONED_AFTER:
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def leave_receipt(folder: Path) -> None:
    """Record that this process created `folder`. Without a receipt, no other process completes its content."""
    own = _receipts(make=True)
    if own is not None:
        with contextlib.suppress(OSError):
            (own / folder.name).write_text(_identity(folder))


def has_receipt(folder: Path) -> bool:
    """Check whether a process of this user created `folder` itself, and not a copy with the same name."""
    own = _receipts()
    try:
        return own is not None and (own / folder.name).read_text() == _identity(folder)
    except OSError:
        return False


def discard_receipt(folder: Path) -> None:
    """Remove the receipt of a deleted folder."""
    own = _receipts()
    if own is not None:
        with contextlib.suppress(OSError):
            (own / folder.name).unlink()
        with contextlib.suppress(OSError):
            own.rmdir()


def _receipts(make: bool = False) -> Path | None:
    """Return the folder of receipts if it belongs to this user alone, else None."""
    user = os.getuid() if hasattr(os, "getuid") else None
    folder = Path(tempfile.gettempdir()) / ("dovetail-receipts" if user is None else f"dovetail-receipts-{user}")
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        status = folder.lstat()
    except OSError:
        return None
    private = user is None or status.st_uid == user and not stat.S_IMODE(status.st_mode) & 0o077
    return folder if stat.S_ISDIR(status.st_mode) and private else None


def _identity(folder: Path) -> str:
    status = folder.lstat()
    return f"{status.st_dev}:{status.st_ino}"
