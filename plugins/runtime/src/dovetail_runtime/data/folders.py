"""Folders of data files: which files they hold, in which order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dovetail.errors import DovetailError
from dovetail_onnx.files.reading import check_input

_ENDINGS = (".npz", ".npy", ".pb")
_SAVE = "save the inputs with numpy.savez, by input name"


def data_files(path: Path) -> list[Path]:
    """The data files at a path, in the order in which they are read."""
    return [file for _, files in data_folders(path) for file in files] if path.is_dir() else [path]


def data_folders(path: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield a folder and those below it that hold data files, each with its files, sorted by name.

    Folders inside a folder without files are left out, except those directly below `path`: ONNX's test data has one
    folder per sample.

    Raises:
        DovetailError: There is no data file, a data file is no regular file, or a link leads to a folder that was
            met before, such as the one it lies in.
    """
    found = [(folder, files) for folder, files in _walk(path) if files]
    if not found:
        raise DovetailError(
            f"{path} holds no .npz, .npy or .pb file", "save the inputs with numpy.savez, by input name"
        )
    yield from found


def _walk(path: Path) -> Iterator[tuple[Path, list[Path]]]:
    seen: dict[tuple[int, int], Path] = {}
    stack = [path]
    while stack:
        folder = stack.pop()
        entries = _entries(folder, seen)
        files = [entry for entry in entries if entry.suffix in _ENDINGS and not entry.is_dir()]
        for file in files:
            check_input(file)
        yield folder, files
        if files or folder == path:
            stack += [entry for entry in reversed(entries) if entry.is_dir()]


def _entries(folder: Path, seen: dict[tuple[int, int], Path]) -> list[Path]:
    try:
        status = os.stat(folder)
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise DovetailError(f"{folder}: cannot be read: {error.strerror or error}") from None
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        raise DovetailError(f"{folder} is {seen[identity]} once more", "remove the link; samples are read once")
    seen[identity] = folder
    return entries
