"""Receipts: which staging folders a process of this user left, so that another process may complete them.

A receipt is a link to the folder, named after the folder and its inode: a copy of the folder has none.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from dovetail.plugin import RECEIPTS, user_folder

_ATTEMPTS = 100


def receipts_folder(make: bool = False) -> Path | None:
    """Return the folder with the receipts of this user; None if there is none.

    Args:
        make: Create it if it is missing.
    """
    root = user_folder(make)
    if root is None:
        return None
    folder = root / RECEIPTS
    if make:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
    return folder if folder.is_dir() else None


def leave_receipt(folder: Path) -> None:
    """Record that this process created `folder`. Without a receipt, no other process completes its content."""
    for _ in range(_ATTEMPTS):  # whoever discards the last receipt removes their folder, too
        if receipts := receipts_folder(make=True):
            try:
                (receipts / _name(folder)).symlink_to(folder.absolute(), target_is_directory=True)
            except FileNotFoundError:
                continue
            except OSError:
                pass
            return


def has_receipt(folder: Path) -> bool:
    """Check whether a process of this user created `folder` itself, and not a copy with the same name."""
    receipts = receipts_folder()
    try:
        return receipts is not None and (receipts / _name(folder)).is_symlink()
    except OSError:
        return False


def discard_receipt(folder: Path) -> None:
    """Remove the receipt of a deleted folder."""
    receipts = receipts_folder()
    if receipts is None:
        return
    with contextlib.suppress(OSError):
        for receipt in list(receipts.glob(f"{folder.name}@*")):
            receipt.unlink()
    for place in (receipts, receipts.parent):
        with contextlib.suppress(OSError):
            place.rmdir()


def _name(folder: Path) -> str:
    status = folder.lstat()
    return f"{folder.name}@{status.st_dev}-{status.st_ino}"
