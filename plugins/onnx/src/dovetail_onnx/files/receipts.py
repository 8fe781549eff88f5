"""Receipts for temporary folders: which of them processes of this user left on this machine.

A folder from somebody else, unpacked from an archive say, may hold what looks like the temporary folder of a writer
that was killed. A writer leaves a receipt where nobody else can write, and only what has one is completed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def leave_receipt(folder: Path) -> None:
    """Note that this process made `folder`. Where that cannot be noted, nobody will complete what is in it."""
    own = _receipts(make=True)
    if own is not None:
        with contextlib.suppress(OSError):
            (own / folder.name).write_text(_identity(folder))


def has_receipt(folder: Path) -> bool:
    """Whether a process of this user made `folder`, and not a copy of it with the same name."""
    own = _receipts()
    try:
        return own is not None and (own / folder.name).read_text() == _identity(folder)
    except OSError:
        return False


def discard_receipt(folder: Path) -> None:
    """Forget a folder that is gone."""
    own = _receipts()
    if own is not None:
        with contextlib.suppress(OSError):
            (own / folder.name).unlink()
        with contextlib.suppress(OSError):
            own.rmdir()


def _receipts(make: bool = False) -> Path | None:
    """The folder of receipts, if it belongs to this user alone."""
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
