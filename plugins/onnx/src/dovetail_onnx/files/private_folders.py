"""Folders that belong to one user: where caches are, and whether others can write to a folder or replace it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MOST_LINKS = 40


def cache_folder() -> Path:
    """Return the folder of this user's caches, as the system has it: on Linux in `$XDG_CACHE_HOME` or `~/.cache`."""
    from platformdirs import user_cache_path

    return user_cache_path("dovetail", appauthor=False)


def exposed(folder: Path) -> str:
    """Say why other users may change what is in a folder, and what to do; empty if they cannot.

    The folder must be this user's, and no link. All folders above it, also where links on the way lead, must belong to
    this user or to root, and others may write to them only where they cannot replace what they do not own (`/tmp`);
    what is directly in such a folder must be closed to others. A folder that does not exist yet can be made.

    Args:
        folder: Its absolute path.
    """
    if not hasattr(os, "getuid"):
        return ""
    at, waiting, links, is_shared = Path(folder.anchor), list(reversed(folder.parts[1:])), 0, False
    owners = {os.getuid(), 0, os.stat("/").st_uid}  # root has another number in some containers
    while waiting:
        part = waiting.pop()
        at = at.parent if part == ".." else at / part
        try:
            status = at.lstat()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{at} cannot be read: {error.strerror}"
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if not waiting:
                place = "the folder that it leads to" if status.st_uid == os.getuid() else "another folder"
                return f"{at} is a link; name {place}"
            if status.st_uid not in owners or links > _MOST_LINKS:
                return f"{at} is a link of another user, or one of too many; name another folder"
            target = Path(os.readlink(at))
            at = Path(target.anchor) if target.is_absolute() else at.parent
            waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            continue
        if not stat.S_ISDIR(status.st_mode):
            return f"{at} is not a folder; name another one"
        mode, is_open = stat.S_IMODE(status.st_mode), _is_writable_by_others(status)
        if not waiting:
            return _exposed_itself(at, status, is_open, is_shared)
        if status.st_uid not in owners or is_open and not mode & stat.S_ISVTX:
            return f"{at} belongs to another user, or others may write to it; name a folder in a place of your own"
        is_shared = is_open
    return ""


def _exposed_itself(folder: Path, status: os.stat_result, is_open: bool, is_shared: bool) -> str:
    if status.st_uid != os.getuid():
        return f"{folder} belongs to another user; name a folder of your own"
    if is_open or is_shared and stat.S_IMODE(status.st_mode) & 0o077:
        return f"{folder} is open to other users; close it to them (chmod 700), or name another folder"
    return ""


def _is_writable_by_others(status: os.stat_result) -> bool:
    mode = stat.S_IMODE(status.st_mode)
    return bool(mode & stat.S_IWOTH) or bool(mode & stat.S_IWGRP) and not _is_private_group(status.st_gid)


def _is_private_group(number: int) -> bool:
    """Whether a group is this user's alone, as many systems make one for every user (with the umask 002)."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
