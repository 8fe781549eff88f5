"""Writing of a result to a staging folder, to be committed atomically."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.plugin import hold

from dovetail_onnx.files.writing import created_folders, named, replacing_file, write_text
from dovetail_onnx.results.committing import commit, is_decided
from dovetail_onnx.results.manifest import ATTACHED, MANIFEST, FileRecord, Manifest, plain_name
from dovetail_onnx.saving import SavedFile

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel

    from dovetail_onnx.results.reading import SavedFolder


_CHUNK = 1 << 22  # bytes


@dataclass
class Staging:
    """A result that is being written.

    Attributes:
        folder: The final folder.
        path: The staging folder.
        files: The files written so far.
    """

    folder: Path
    path: Path
    files: dict[str, FileRecord] = field(default_factory=dict)
    _copies: dict[tuple[int, int], str] = field(default_factory=dict)

    def add(self, *files: SavedFile) -> None:
        """Record written files."""
        for file in files:
            self.files[file.path.name] = FileRecord(file.size, file.sha256)

    def copy(self, name: str, source: Path) -> None:
        """Copy one file; `name` may contain folders.

        Hard links in the source, such as engine files under several names, are preserved.
        """
        target, status = self.path / name, source.stat()
        target.parent.mkdir(parents=True, exist_ok=True)
        first = self._copies.setdefault((status.st_dev, status.st_ino), name)
        if first != name:
            with contextlib.suppress(OSError):
                os.link(self.path / first, target)
                self.files[name] = self.files[first]
                return
        self.files[name] = copied(source, target)

    def write(self, name: str, text: str) -> None:
        """Write a text file.

        Raises:
            DovetailError: The name, which comes from a pass, is reserved or not a plain name.
        """
        taken = name in self.files or name == MANIFEST or name.endswith(".data")
        if taken or name.startswith(".") or Path(name).name != name:
            raise DovetailError(f"a pass wants to write '{name}' beside the model", "it must take another plain name")
        write_text(self.path / name, text)
        content = text.encode()
        self.files[name] = FileRecord(len(content), hashlib.sha256(content).hexdigest())

    def commit(self, manifest: Manifest) -> None:
        """Replace the result in the folder by this one."""
        commit(self.folder, self.path, manifest)


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Staging]:
    """Stage a result; if the block does not commit it, no trace remains.

    Raises:
        DovetailError: The folder cannot be written to, or the disk is full.
    """
    with named(folder), created_folders(folder):
        path, descriptor = _new_staging(folder)
        try:
            yield Staging(folder, path)
        except DovetailError as error:
            # Users do not know the staging folder, so name the final one.
            message = error.message.replace(f"{path}{os.sep}", f"{folder}{os.sep}")
            raise DovetailError(message, error.hint) from error
        finally:
            if not is_decided(folder, path):
                shutil.rmtree(path, ignore_errors=True)
            if descriptor is not None:
                os.close(descriptor)


def copied(source: Path, target: Path) -> FileRecord:
    """Copy a file, and return its size and digest."""
    digest, size = hashlib.sha256(), 0
    with replacing_file(target) as out, source.open("rb") as original:
        while chunk := original.read(_CHUNK):
            out.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return FileRecord(size, digest.hexdigest())


def _new_staging(folder: Path) -> tuple[Path, int | None]:
    """Create a folder that only this user can access, locked until its descriptor is closed."""
    while True:
        path = folder / f".dovetail-{secrets.token_hex(8)}"
        # Until it is locked, another writer may remove it as an orphan; a failed writer may even remove the parent
        # folder.
        with contextlib.suppress(FileNotFoundError):
            folder.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
            if os.name == "nt":
                return path, None
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            if hold(descriptor) is not False and path.exists():
                return path, descriptor
            os.close(descriptor)


_KEY = "files"


def files_beside(summary: Mapping[str, Any], path: Path) -> dict[str, Path]:
    """Return the paths of files that the summary of a plan names, whether they exist or not.

    Args:
        summary: The summary.
        path: The file of the plan.

    Raises:
        DovetailError: A name is not that of a file in the plan's folder.
    """
    try:
        return {_attached_name(str(name)): path.parent / str(name) for name in (summary.get(_KEY) or {})}
    except (TypeError, ValueError) as error:
        raise DovetailError(f"{path}: '{_KEY}' in its summary: {error}", "replay a plan as it was saved") from None


def _attached_name(name: str) -> str:
    """Return `name` after checking that it names arrays next to a plan, and no other file of a result.

    Raises:
        ValueError: It does not.
    """
    if "/" in plain_name(name) or not name.endswith(ATTACHED):
        raise ValueError(f"{name!r} is not the name of arrays ({ATTACHED}) beside the plan")
    return name


def attached_files(compiled: CompiledModel, saved: SavedFolder | None) -> Mapping[str, Path]:
    """Return the files that belong to the plan of a result; for a loaded result, only unmodified ones."""
    found = saved.found if saved is not None else None
    if found is None:
        return compiled.plan.files
    names = [name for name in found.manifest.files if name.endswith(ATTACHED) and name not in found.altered]
    return {name: found.folder / name for name in names}


def copy_beside(files: Mapping[str, Path], path: Path) -> None:
    """Copy the files of a plan next to its file, unless they already exist."""
    for name, source in files.items():
        target = path.parent / name
        if source.is_file() and not (target.exists() and target.samefile(source)):
            copied(source, target)
