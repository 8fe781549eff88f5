"""Lookup of the result in a folder, with concurrent writers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dovetail.errors import DovetailError
from dovetail.files import seen

from dovetail_onnx.files.reading import is_file_inside, open_inside
from dovetail_onnx.results.committing import finish, stagings
from dovetail_onnx.results.manifest import ARTIFACTS, ATTACHED, MANIFEST, MODEL, FileRecord, Manifest
from dovetail_onnx.saving import CONTENT_DIGEST, read_content_digest
from dovetail_onnx.skeleton import skeleton_of

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import PluginSet


_TRIES, _PAUSE = 50, 0.02  # seconds; a commit takes a few milliseconds
_HASHED_UP_TO = 64 << 20  # bytes; a twentieth of a second


class FoundResult(NamedTuple):
    """A result in a folder.

    Attributes:
        folder: The folder.
        manifest: The result's manifest.
        model: The model file, in a staging folder if the writer was killed.
        texts: The content of unmodified small files, by name.
        altered: The names of modified or missing small files and artifacts.
        commit: Identifies the commit, even among those of equal results.
    """

    folder: Path
    manifest: Manifest
    model: Path
    texts: Mapping[str, bytes]
    altered: frozenset[str]
    commit: tuple[int, ...]


class SavedFolder(NamedTuple):
    """Origin of a loaded result; `dovetail.plugin.SavedResult` for folders and model files.

    Attributes:
        file: The model file.
        found: The result that the file belongs to; None for a model file alone.
    """

    file: Path
    found: FoundResult | None

    @property
    def placements(self) -> list[dict[str, Any]] | None:
        """The rows of the manifest."""
        return self.found.manifest.placements if self.found is not None else None

    @property
    def coverage(self) -> str | None:
        """The coverage line of the manifest."""
        return self.found.manifest.summary if self.found is not None else None


def find_result(folder: Path) -> FoundResult | None:
    """Return the result in `folder`; None if it has no manifest.

    Small files are compared with their digests, and so are model and data files, unless they are larger than 64 MiB and
    older than the manifest, which is written after them. In that case only their size and the model's content digest
    are checked.

    Raises:
        DovetailError: The manifest cannot be read, or the model is not the one it names.
    """
    found = None
    for _ in range(_TRIES):
        finish(folder)
        commit = _commit(folder)
        read = Manifest.read(folder / MANIFEST)
        if read is None:
            return None
        found = _look(folder, *read, commit)
        if commit == _commit(folder) and (isinstance(found, FoundResult) or not stagings(folder)):
            break
        time.sleep(_PAUSE)  # another writer is committing
    if isinstance(found, FoundResult):
        return found
    raise DovetailError(
        f"{folder}: {found}", f"compile again into this folder, or name {MODEL} itself to use it as any other model"
    )


def open_result(folder: Path, plugins: PluginSet) -> tuple[Model, FoundResult] | None:
    """Return the result in `folder`, with its model opened by the front ends of `plugins`; None without a manifest.

    Raises:
        DovetailError: As `find_result`, or the model cannot be opened.
    """
    for _ in range(_TRIES):
        found = find_result(folder)
        if found is None:
            return None
        try:
            model = _open(found, plugins)
            _map_weights(model)
        except (DovetailError, OSError) as error:
            if isinstance(error, DovetailError) and find_result(folder) == found:
                raise
        else:
            if content_digest_of(model) == found.manifest.content_digest:
                return model, found
        time.sleep(_PAUSE)
    raise DovetailError(f"{folder} does not stop changing", "wait until its writers are done")


def _open(found: FoundResult, plugins: PluginSet) -> Model:
    """Open the model; if it is still staged, its data may already be in the folder."""
    from dovetail.plugin.loading import open_file, open_object

    data = [name for name in found.manifest.files if name.endswith(".data")]
    if not data or found.model.parent == found.folder or (found.model.parent / data[0]).is_file():
        return open_file(found.model, plugins)
    beside = found.folder / MODEL
    return open_object(seen(found.model).read_bytes(), plugins.registry, beside)


def _map_weights(model: Model) -> None:
    """Map data files immediately, because another writer may remove them together with their result."""
    if model.untouched:
        for tensor in skeleton_of(model).weights.values():
            if hasattr(tensor, "base_dir") and tensor.dtype.bitwidth >= 8:  # narrower types would be unpacked
                tensor.numpy()


def content_digest_of(model: Model) -> str:
    """Return the content digest in an opened model's metadata; empty if there is none, or the graph was edited."""
    if not model.untouched or model.revision:
        return ""
    return next(
        (entry.value for entry in reversed(skeleton_of(model).proto.metadata_props) if entry.key == CONTENT_DIGEST), ""
    )


def _commit(folder: Path) -> tuple[int, ...]:
    """Return an identity of the last commit; manifests alone are not unique, because equal results have equal ones."""
    try:
        status = (folder / MANIFEST).stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _look(folder: Path, text: bytes, manifest: Manifest, commit: tuple[int, ...]) -> FoundResult | str:
    """Return the files of `manifest`, or a description of the problem."""
    places = [folder, *stagings(folder, text)]
    written = commit[0] if commit else 0
    model, texts, altered = None, {}, set()
    for name, record in manifest.files.items():
        if name.startswith(f"{ARTIFACTS}/") or name.endswith(ATTACHED):
            if not _is_there(folder, name, record, manifest, written):
                if any(is_file_inside(place, name) for place in places[1:]):
                    return "its files are being replaced"
                altered.add(name)
        elif name == MODEL or name.endswith(".data"):
            held = (place / name for place in places if _is_there(place, name, record, manifest, written))
            found = next(held, None)
            if found is None:
                there = any((place / name).exists() for place in places)
                return f"{name} {'is not the file that was saved with ' + MANIFEST if there else 'is missing'}"
            model = found if name == MODEL else model
        else:
            content = next((c for place in places if (c := _content(place, name, record)) is not None), None)
            if content is None:
                altered.add(name)
            else:
                texts[name] = content
    return FoundResult(folder, manifest, cast("Path", model), texts, frozenset(altered), commit)


def _is_there(folder: Path, name: str, record: FileRecord, manifest: Manifest, written: int) -> bool:
    """Check whether a large file is unmodified, and not a link."""
    try:
        if not is_file_inside(folder, name):
            return False
        path = folder / name
        status = path.stat()
        if status.st_size != record.size or name == MODEL and read_content_digest(path) != manifest.content_digest:
            return False
        if status.st_size > _HASHED_UP_TO and status.st_mtime_ns < written:
            return True
        return record.describes(folder, name)
    except OSError:
        return False


def _content(folder: Path, name: str, record: FileRecord) -> bytes | None:
    """Return the content of a file if it is unmodified, else None."""
    try:
        with open_inside(folder, name) as file:
            content = file.read(record.size + 1)
    except OSError:
        return None
    same = len(content) == record.size and hashlib.sha256(content).hexdigest() == record.sha256
    return content if same else None
