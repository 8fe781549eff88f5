"""Record of refinements for the plan: the `record-refinements` pass, and the file of arrays next to the plan."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError
from dovetail.files import seen
from dovetail.planning import Plan
from dovetail.plugin import TemporaryFolder
from dovetail_onnx.files.parsing import parse_json
from dovetail_onnx.files.reading import file_sha256
from dovetail_onnx.files.writing import write_array

from dovetail_quantize.refining.steps import RECORD, steps_of

if TYPE_CHECKING:
    from dovetail.passes import Context


SUFFIX = ".npz"
_INDEX = "index.json"
_LARGEST_INDEX = 1 << 26  # bytes
_CHUNK = 1 << 20  # bytes
_HINT = "replay the folder that the result was saved in, or compile without --plan and give --data"


class SavedFiles(dict):
    """Files by name that exist as long as this mapping.

    Args:
        folder: The temporary folder of the files.
        paths: Their paths by name.
    """

    def __init__(self, folder: TemporaryFolder, paths: dict[str, Path]):
        super().__init__(paths)
        self._folder = folder


class SavedWriter:
    """Collects arrays on disk, and writes them to one file."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder("refined")
        self._index: list[tuple[str, str]] = []

    def add(self, step: str, name: str, array: np.ndarray) -> np.ndarray:
        """Store an array.

        Args:
            step: The refinement that found it.
            name: Name of its value or node.
            array: The array.

        Returns:
            The same numbers, mapped from disk.
        """
        path = self._path(len(self._index))
        write_array(path, array)
        self._index.append((step, name))
        return np.load(path, mmap_mode="r")

    def finish(self) -> tuple[SavedFiles, str] | None:
        """Write the file. Its name begins with its digest, and equal arrays give equal bytes.

        Returns:
            The file by name, and its hexadecimal SHA-256 digest; None without arrays.
        """
        if not self._index:
            return None
        root = self._folder.path
        path = root / "refined"
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(len(self._index)):
                # `np.savez` would write the time of day, which changes the digest.
                info = zipfile.ZipInfo(f"{number}.npy")
                with self._path(number).open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
                    _copy(source, target)
            archive.writestr(zipfile.ZipInfo(_INDEX), json.dumps(self._index))
        digest = file_sha256(path)
        named = root / f"refined-{digest[:12]}{SUFFIX}"
        path.rename(named)
        return SavedFiles(self._folder, {named.name: named}), digest

    def _path(self, number: int) -> Path:
        return self._folder.path / f"{number}.npy"


class Saved:
    """Arrays in a file from `SavedWriter`, read on demand.

    Args:
        path: The file.
        digest: Its SHA-256 digest.

    Raises:
        DovetailError: The file is missing, or its digest differs.
    """

    def __init__(self, path: Path | None, digest: str, name: str = ""):
        what = f"plan: {path or name}, which has the weights that data has changed,"
        if path is None or not seen(path).is_file():
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
        """Return an array; None if the refinement left this name unchanged.

        Raises:
            DovetailError: Its shape does not match the model, or it cannot be read.
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


_FILES = "files"


class RefinementRecord:
    """Record of the refinements of one compilation.

    Args:
        ctx: Its context.

    Attributes:
        steps: The refinements by backend.
        replayed: Whether data-dependent changes come from a replayed plan, not from data.
    """

    def __init__(self, ctx: Context):
        self._plan, self._decided = ctx.outcome.plan, ctx.outcome.decided
        self.steps: Mapping[str, tuple[str, ...]] = steps_of(ctx)
        plan = ctx.request.plan or Plan()
        summary = plan.summary
        self.replayed = bool(plan.values) and RECORD in summary
        self._counts: Counter[str] = Counter()
        self._writer: SavedWriter | None = None
        self._saved: Saved | None = None
        recorded = summary[RECORD] if self.replayed else {}
        if recorded.get("file"):
            name = str(recorded["file"])
            digest = (summary.get(_FILES) or {}).get(name, "")
            self._saved = Saved(plan.files.get(name), digest, name)

    @classmethod
    def of(cls, ctx: Context) -> RefinementRecord:
        """Return the record of the current plan, created on first use."""
        known = ctx.kept.get(cls)
        if known is None or known._plan is not ctx.outcome.plan or known._decided is not ctx.outcome.decided:
            known = ctx.kept.put(cls(ctx))
        return known

    @property
    def found_arrays(self) -> bool:
        """Whether there are arrays that a replay needs."""
        return self._writer is not None

    def count(self, step: str, number: int = 1) -> None:
        """Count changes made by a refinement."""
        self._counts[step] += number

    def changed(self, steps: Iterable[str]) -> bool:
        """Check whether any of these refinements has changed something."""
        return any(self._counts[step] for step in steps)

    def save(self, step: str, name: str, array: np.ndarray) -> np.ndarray:
        """Store an array that a refinement found on data, and return it mapped from disk; see `SavedWriter.add`."""
        self._writer = self._writer or SavedWriter()
        return self._writer.add(step, name, array)

    def saved(self, step: str, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the replayed plan's array of a refinement; None if it changed nothing there."""
        return None if self._saved is None else self._saved.get(step, name, shape)

    def finish(self, ctx: Context) -> None:
        """Write the refinements to the plan's summary, and attach the file that a replay needs."""
        plan = ctx.outcome.plan
        if plan is None:
            return
        entry: dict[str, object] = {"steps": {name: list(steps) for name, steps in self.steps.items()}}
        entry["changed"] = {step: number for step, number in sorted(self._counts.items()) if number}
        written = self._writer.finish() if self._writer is not None else None
        if written is not None:
            files, digest = written
            (name,) = files
            entry["file"] = name
            plan.files = files
            plan.summary[_FILES] = {name: digest}
        plan.summary[RECORD] = entry
