"""Temporary files and folders: created in one place, locked while their owner lives, and removed if it was killed.

The kernel releases a lock when the process ends, for whatever reason, and sees through namespaces of process ids. Hence
a file or folder that can be locked has no owner. Process ids would be reused, and mean nothing on another machine.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Collection
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a system without it


_ABANDONED_AFTER = 24 * 3600  # seconds, if files cannot be locked
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)
_ATTEMPTS = 100  # to make a folder that other processes remove as abandoned before it is locked
RECEIPTS = "receipts"
"""Subfolder of the user's folder with links to work that other processes have to finish. A link stays until its target
is gone."""


def hold(descriptor: int) -> bool | None:
    """Lock an open file or folder until it is closed or the process ends.

    Args:
        descriptor: The open file or folder.

    Returns:
        True if it is locked now, False if another process has locked it, None if locking is not supported.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def remove_orphans(folder: Path, name: re.Pattern[str], keep: Collection[str] = ()) -> None:
    """Remove the files and folders in `folder` whose whole name matches `name` and that have no owner any more.

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


def user_folder(make: bool = False) -> Path | None:
    """Return the folder of this user below the system's temporary folder; None if there is none of this user alone.

    Args:
        make: Create it if it is missing.
    """
    user = os.getuid() if hasattr(os, "getuid") else None
    try:
        folder = Path(tempfile.gettempdir()) / ("dovetail" if user is None else f"dovetail-{user}")
        status = _made(folder) if make else folder.lstat()
    except OSError:
        return None
    private = user is None or status.st_uid == user and not stat.S_IMODE(status.st_mode) & 0o077
    return folder if stat.S_ISDIR(status.st_mode) and private else None


def _made(folder: Path) -> os.stat_result:
    """Create a folder unless it exists, and return its status, while other processes remove it whenever it is empty."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            return folder.lstat()
    return folder.lstat()


def remove_abandoned() -> None:
    """Remove the temporary files of this user whose processes have ended without doing so."""
    root = user_folder()
    if root is None:
        return
    remove_orphans(root, re.compile(".+"), keep=(RECEIPTS,))
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(root / RECEIPTS)):
            if entry.is_symlink() and not os.path.exists(entry.path):
                os.unlink(entry.path)
    for folder in (root / RECEIPTS, root):
        _remove_if_empty(folder)


class TemporaryFolder:
    """A folder that lives as long as this object, and is removed by the next process if this one is killed.

    As a context manager, it yields its path.

    Args:
        purpose: Its purpose, in one or two words that become part of its name: `artifacts`.
        within: The folder to make it in, for content that is moved to a place nearby; by default the folder of this
            process below the system's temporary folder.

    Attributes:
        path: The folder.
    """

    def __init__(self, purpose: str, within: Path | None = None):
        lock = None
        if within is None:
            self.path = Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=_process_folder()))
        else:
            prefix = f".dovetail-{purpose}-"
            remove_orphans(within, re.compile(rf"{re.escape(prefix)}[a-z0-9_]{{8}}"))
            self.path, lock = _made_and_locked(prefix, within)
        self._finalizer = weakref.finalize(self, _discard, self.path, lock, os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Remove the folder and what is in it."""
        self._finalizer()


def is_temporary(path: str) -> bool:
    """Check whether a path is in a temporary folder of this user's processes, or of this process."""
    folder = _ProcessFolder.current
    own = (user_folder(), folder.path if folder is not None else None)
    return any(place is not None and path.startswith(f"{place}{os.sep}") for place in own)


def anonymous_file() -> IO[bytes]:
    """Return a temporary file without a name, for reading and writing, which is gone once it is closed."""
    return tempfile.TemporaryFile(dir=_process_folder())


def _discard(path: Path, lock: int | None, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(path, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def _made_and_locked(prefix: str, within: Path) -> tuple[Path, int | None]:
    """Create a folder, and lock it; None for its descriptor if folders cannot be opened."""
    for _ in range(_ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
        if fcntl is None:
            return path, None
        try:
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # removed as abandoned before it could be locked
            continue
        if hold(lock) is not False and path.exists():
            return path, lock
        os.close(lock)
    raise OSError(errno.EAGAIN, "temporary folders disappear as soon as they are made", str(within))


class _ProcessFolder:
    """The folder of one process, which holds its temporary folders under one lock, and goes when the process ends."""

    current: _ProcessFolder | None = None

    def __init__(self) -> None:
        self._owner = os.getpid()
        for _ in range(_ATTEMPTS):
            root = user_folder(make=True)
            prefix = f"{self._owner}-" if root is not None else f"dovetail-{self._owner}-"
            try:
                self.path, lock = _made_and_locked(prefix, root or Path(tempfile.gettempdir()))
                break
            except FileNotFoundError:  # another process has just removed the user's folder, which was empty
                if not Path(tempfile.gettempdir()).is_dir():
                    raise
        # Not when this object goes: folders of an earlier TMPDIR, or of the parent of a fork, are still in use.
        atexit.register(_end_process_folder, self.path, lock, self._owner)

    def is_usable(self) -> bool:
        """Whether it belongs to this process, exists, and is below the present temporary folder."""
        place = Path(tempfile.gettempdir())
        return self._owner == os.getpid() and self.path.is_dir() and place in self.path.parents


def _process_folder() -> Path:
    """Return the folder of this process, created on first use."""
    folder = _ProcessFolder.current
    if folder is None or not folder.is_usable():
        remove_abandoned()
        folder = _ProcessFolder.current = _ProcessFolder()
    return folder.path


def _end_process_folder(path: Path, lock: int | None, owner: int) -> None:
    _discard(path, lock, owner)
    if os.getpid() == owner:
        remove_abandoned()  # the user's folder goes too if nothing else is in it


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
