"""The file of what refining found on data: arrays by refinement and name, in NumPy's `.npz` format."""

from __future__ import annotations

import json
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
from dovetail.errors import DovetailError
from dovetail_onnx.files.digests import file_sha256
from dovetail_onnx.files.parsing import parse_json

SUFFIX = ".npz"
_INDEX = "index.json"
_LARGEST_INDEX = 1 << 26  # bytes
_CHUNK = 1 << 20  # bytes
_HINT = "replay the folder that the result was saved in, or compile without --plan and give --data"


class SavedFiles(dict):
    """Files by name that live as long as this mapping.

    Args:
        folder: The temporary folder that holds them.
        paths: Their paths by name.
    """

    def __init__(self, folder: tempfile.TemporaryDirectory, paths: dict[str, Path]):
        super().__init__(paths)
        self._folder = folder


class SavedWriter:
    """Collects arrays on disk, and writes them as one file."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-refined-")
        self._index: list[tuple[str, str]] = []

    def add(self, step: str, name: str, array: np.ndarray) -> np.ndarray:
        """Keep an array.

        Args:
            step: The refinement that found it.
            name: Name of the value or node that it belongs to.
            array: The array.

        Returns:
            The same numbers, mapped from disk.
        """
        path = self._path(len(self._index))
        np.save(path, array)
        self._index.append((step, name))
        return np.load(path, mmap_mode="r")

    def finish(self) -> tuple[SavedFiles, str] | None:
        """Write the file: its name begins with its digest, and equal arrays give equal bytes.

        Returns:
            The file by its name, and its SHA-256 in hexadecimal digits; None if there are no arrays.
        """
        if not self._index:
            return None
        root = Path(self._folder.name)
        path = root / "refined"
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(len(self._index)):
                # Without the time of day, which `np.savez` writes.
                info = zipfile.ZipInfo(f"{number}.npy")
                with self._path(number).open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
                    _copy(source, target)
            archive.writestr(zipfile.ZipInfo(_INDEX), json.dumps(self._index))
        digest = file_sha256(path)
        named = root / f"refined-{digest[:12]}{SUFFIX}"
        path.rename(named)
        return SavedFiles(self._folder, {named.name: named}), digest

    def _path(self, number: int) -> Path:
        return Path(self._folder.name) / f"{number}.npy"


class Saved:
    """The arrays in a file that `SavedWriter` wrote; they are read when they are asked for.

    Args:
        path: The file.
        digest: Its SHA-256.

    Raises:
        DovetailError: It is missing, or another file.
    """

    def __init__(self, path: Path | None, digest: str, name: str = ""):
        what = f"plan: {path or name}, which has the weights that data has changed,"
        if path is None or not path.is_file():
            raise DovetailError(f"{what} is missing", _HINT)
        if file_sha256(path) != digest:
            raise DovetailError(f"{what} is not the file that was saved with the plan", _HINT)
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive, archive.open(_INDEX) as file:
                entries = parse_json(file.read(_LARGEST_INDEX))
            self._numbers = {(str(step), str(name)): number for number, (step, name) in enumerate(entries)}
        except (zipfile.BadZipFile, KeyError, ValueError, TypeError, OSError) as error:
            raise DovetailError(f"{what} cannot be read: {error}", _HINT) from None

    def get(self, step: str, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """An array; None if the refinement left this name as it was.

        Raises:
            DovetailError: It has another shape than the model wants, or cannot be read.
        """
        number = self._numbers.get((step, name))
        if number is None:
            return None
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(f"{number}.npy") as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
        except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, OSError) as error:
            raise DovetailError(f"{self.path}: {step} of '{name}' cannot be read: {error}", _HINT) from None
        if array.shape != shape or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            found = f"{array.dtype}{list(array.shape)}"
            raise DovetailError(
                f"{self.path}: {step} of '{name}' is {found}, and this model has {list(shape)}",
                "replay the plan on the model that it was made for",
            )
        return array


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    while chunk := source.read(_CHUNK):
        target.write(chunk)
