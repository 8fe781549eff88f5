"""Temporary files and folders whose writer may die: who still writes, and what can be removed.

A writer locks what it writes; the kernel takes the lock back when the process ends, however it ends. So what can be
locked has no writer. Process numbers would be used again, and mean nothing on another machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Collection
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


_ABANDONED_AFTER = 24 * 3600  # seconds, where files cannot be locked
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)


def hold(descriptor: int, wait: bool = False) -> bool | None:
    """Lock an open file or folder until it is closed or the process ends.

    Args:
        descriptor: The open file or folder.
        wait: Wait for whoever holds it.

    Returns:
        True if it is held now, False if somebody else holds it, None where nothing can be locked.
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
    """Remove the files and folders in `folder` whose whole name matches `name` and that nobody writes any more.

    Those named in `keep` stay. Links are left alone, and so is what cannot be removed.
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
