"""Atomic replacement of an old result by a new one.

Several files cannot be renamed at once, so a single rename is decisive: that of the manifest. Before it, the folder
holds the old result, and the staging folder the complete new one. After it, the folder holds the new result: files that
are still staged are moved into place by the writer, or, if it was killed, by the next writer or reader. A folder may
come from another user, so only a staging folder that a process of this user left is moved, and no step follows a link.
The order of the steps:

1. the manifest takes the place of the old one: from here on the new result counts;
2. the other files take their places, the model last and its data right before it;
3. files that belonged to the old result only, and the staging folder, are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from dovetail.errors import DovetailError
from dovetail.plugin import hold, remove_orphans

from dovetail_onnx.files.parsing import parse_json
from dovetail_onnx.files.reading import move_inside, open_inside, remove_folders_inside, remove_inside
from dovetail_onnx.files.receipts import discard_receipt, has_receipt, leave_receipt
from dovetail_onnx.files.writing import sync_folder, write_text
from dovetail_onnx.results.manifest import LARGEST, MANIFEST, MODEL, FileRecord, Manifest, plain_name
from dovetail_onnx.saving import data_files, remove_data

_STAGING = re.compile(r"\.dovetail-[0-9a-f]{16}")
_DATA = re.compile(r"model-[0-9a-f]{12}\.data")
_REPLACED, _NEXT = "replaced.json", "next.json"
_WAIT, _WAITS = 0.05, 1200  # seconds between attempts to lock a folder, and their number


def commit(folder: Path, staging: Path, manifest: Manifest) -> None:
    """Replace the result in `folder` by the complete one in `staging`.

    Raises:
        DovetailError: A file of the result cannot be moved into place; the message says whether anything was changed.
        OSError: A file could not be moved.
    """
    text = manifest.text()
    with _locked(folder):
        finish(folder, locked=True)
        _remove_abandoned(folder, staging)
        for name in manifest.files:
            _check_folders(folder, name)
            if (folder / name).is_dir() and not (folder / name).is_symlink():
                raise DovetailError(f"{folder / name} is a folder", "remove it, or name another folder to write to")
        if replaced := _replaced(folder, manifest):
            write_text(staging / _REPLACED, json.dumps(replaced))
        # Not earlier: an equal manifest in the folder and in a staging folder means that the rename has happened.
        write_text(staging / MANIFEST, text)
        _second_name(staging / MANIFEST, staging / _NEXT, text)
        leave_receipt(staging)
        _sync_folders(staging, manifest)
        staging.chmod(stat.S_IMODE(folder.stat().st_mode))  # from here on, other users may have to read it
        (staging / _NEXT).replace(folder / MANIFEST)
        try:
            _move(folder, staging, manifest)
        except OSError as error:  # the file is open in another program (Windows), or owned by another user
            raise DovetailError(
                f"the result is saved in {folder}, but some of its files could not take their places: {error}",
                "`dovetail.load` reads it all the same; for other programs, remove the obstacle and save again",
            ) from error
        _sync_folders(folder, manifest)


def _sync_folders(root: Path, manifest: Manifest) -> None:
    """Flush the names of a result's files to the disk, once per folder: those inside first."""
    folders = {root / parent for name in manifest.files for parent in Path(name).parents}
    for folder in sorted({root, *folders}, reverse=True):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # a file may be in place from before
            sync_folder(folder)


def finish(folder: Path, locked: bool = False) -> None:
    """Complete a commit of this user whose writer was killed after the decisive rename, as far as possible.

    Readers need no write permission: files that remain in the staging folder are read from there.
    """
    if not any(map(has_receipt, stagings(folder))):
        return
    with (
        contextlib.suppress(OSError, DovetailError),
        contextlib.nullcontext(True) if locked else _locked(folder, wait=False) as mine,
    ):
        found = Manifest.read(folder / MANIFEST)
        if not mine or found is None:
            return
        for staging in filter(has_receipt, stagings(folder, found[0])):
            _move(folder, staging, found[1])


def stagings(folder: Path, manifest: bytes | None = None) -> list[Path]:
    """Return the staging folders in `folder`; with `manifest`, only those of its result."""
    try:
        with os.scandir(folder) as entries:
            found = [Path(e.path) for e in entries if _STAGING.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return found if manifest is None else [staging for staging in found if _read(staging / MANIFEST) == manifest]


def is_decided(folder: Path, staging: Path) -> bool:
    """Check whether the result in `staging` is the current one of `folder`."""
    text = _read(staging / MANIFEST)
    return bool(text) and text == _read(folder / MANIFEST)


def _move(folder: Path, staging: Path, manifest: Manifest) -> None:
    for name in sorted(manifest.files, key=lambda name: (name == MODEL, name.endswith(".data"))):
        with contextlib.suppress(FileNotFoundError):  # moved already
            move_inside(staging, folder, name)
    for name, record in _read_replaced(staging).items():
        _remove(folder, name, record)
        remove_folders_inside(folder, name)
    shutil.rmtree(staging, ignore_errors=True)
    discard_receipt(staging)


def _second_name(path: Path, name: Path, text: str) -> None:
    """Give a file a second name, or write it a second time where a file has only one."""
    try:
        os.link(path, name)  # it is on disk already: no second flush
    except OSError:
        write_text(name, text)


def _check_folders(folder: Path, name: str) -> None:
    """Check that the parents of a name are folders, and not links out of this one."""
    for parent in list(Path(name).parents)[:-1]:
        path = folder / parent
        if path.is_symlink() or path.exists() and not path.is_dir():
            raise DovetailError(f"{path} is no folder", "remove it, or name another folder to write to")


def _replaced(folder: Path, manifest: Manifest) -> Mapping[str, Mapping[str, object]]:
    """Return the files of the result in `folder` that do not belong to the new one."""
    try:
        found = Manifest.read(folder / MANIFEST)
    except DovetailError:
        found = None
    if found is None:
        old = {file.name: FileRecord(file.stat().st_size, "") for file in data_files(folder / MODEL)}
    else:
        old = dict(found[1].files)
    return {name: {"size": r.size, "sha256": r.sha256} for name, r in old.items() if name not in manifest.files}


def _read_replaced(staging: Path) -> Mapping[str, FileRecord]:
    """Read the record of `_replaced`; empty if it is malformed, as the folder may come from another user."""
    try:
        found = parse_json(_read(staging / _REPLACED), finite=True)
        return {plain_name(name): FileRecord(int(r["size"]), str(r["sha256"])) for name, r in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _remove(folder: Path, name: str, record: FileRecord) -> None:
    """Remove a file of the old result, unless it was edited since, or another model refers to it."""
    if _DATA.fullmatch(name):
        remove_data({folder / name})
    elif record.describes(folder, name):
        with contextlib.suppress(OSError):
            remove_inside(folder, name)


def _remove_abandoned(folder: Path, mine: Path) -> None:
    """Remove the staging folders of dead writers."""
    decided = _read(folder / MANIFEST)
    kept = [staging for staging in stagings(folder) if decided and _read(staging / MANIFEST) == decided]
    remove_orphans(folder, _STAGING, keep={mine.name, *(path.name for path in kept)})


def _read(path: Path) -> bytes:
    try:
        with open_inside(path.parent, path.name) as file:
            return file.read(LARGEST)
    except OSError:
        return b""


@contextlib.contextmanager
def _locked(folder: Path, wait: bool = True) -> Iterator[bool]:
    """Lock out other writers of `folder`; yield False if another one holds the lock and `wait` is false.

    Writers hold it for a few renames. Anybody who may read the folder can hold it longer, so the wait is limited.

    If folders cannot be locked (Windows, some network drives), the last of two writers wins, and `load` detects files
    that do not belong together.

    Raises:
        DovetailError: Another program holds the lock for a minute.
    """
    if os.name == "nt":
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        locked = hold(descriptor) is not False
        for _ in range(_WAITS if wait else 0):
            if locked:
                break
            time.sleep(_WAIT)
            locked = hold(descriptor) is not False
        if wait and not locked:
            problem = f"another program has held the lock of {folder} for a minute"
            raise DovetailError(problem, "end that program, or name a folder that other users cannot open")
        yield locked
    finally:
        os.close(descriptor)
