"""The list of files that belong to the result of a folder, so that a later one can replace it."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError
from dovetail.text import printable
from dovetail_onnx.files.reading import is_file_inside, remove_folders_inside, remove_inside

from dovetail_decoder.folder import read_document
from dovetail_decoder.foreign_files import is_inner

MANIFEST = "dovetail.json"
FORMAT = 1
_LARGE = 64 << 20  # bytes; larger files are recognized by their size alone


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder; empty if it has none.

    Raises:
        DovetailError: Another version of this program wrote it.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    found = read_document(path)
    files = found.get("files")
    if (
        found.get("format") != FORMAT
        or not isinstance(files, dict)
        or not all(isinstance(one, dict) for one in files.values())
    ):
        raise DovetailError(
            f"{folder} was written by another version of Dovetail: {path.name} has format {found.get('format')!r}, "
            f"this version writes {FORMAT}",
            "name another folder, or use the version that wrote it",
        )
    return found


def remove_files(target: Path, files: Mapping[str, Any]) -> None:
    """Remove files of an earlier result, unless somebody changed them."""
    for name, record in files.items():
        with contextlib.suppress(OSError):  # somebody else removed it, or a link leads elsewhere
            if is_inner(name) and is_file_inside(target, name) and record_of(target / name) == record:
                remove_inside(target, name)
                remove_folders_inside(target, name)


def record_of(file: Path) -> dict[str, Any]:
    """Return what the manifest says of a file."""
    size = file.stat().st_size
    if size > _LARGE:
        return {"size": size}
    return {"size": size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def checked_files(result: Path) -> list[str]:
    """Return the files that belong to a result, and none that somebody added since; empty if it is no result.

    Raises:
        DovetailError: One is missing, changed, or a link.
    """
    files = manifest_of(result).get("files", {})
    for name, record in files.items():
        if not is_inner(name) or not is_file_inside(result, name) or record_of(result / name) != record:
            raise DovetailError(
                f"{printable(result / name)} is not the file that was saved with this result",
                f"remove {result} to compile it again",
            )
    return list(files)


def copy_result(result: Path, made: Path) -> None:
    """Copy the files that belong to a result, and none that somebody added or changed since.

    Raises:
        DovetailError: One is missing, changed, or a link.
    """
    for name in checked_files(result):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(result / name, made / name)
