"""Receipts: which staging folders a process of this user left, so that another process may complete them.

A receipt is a link to the folder, named after the folder and its inode: a copy of the folder has none.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from dovetail.plugin import receipts_folder


def leave_receipt(folder: Path) -> None:
    """Record that this process created `folder`. Without a receipt, no other process completes its content."""
    receipts = receipts_folder(make=True)
    if receipts is not None:
        with contextlib.suppress(OSError):
            (receipts / _name(folder)).symlink_to(folder.absolute(), target_is_directory=True)


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
