"""Saving of a compiled model as one result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.planning import Remark

from dovetail_onnx.files.reading import file_sha256
from dovetail_onnx.files.resumable import identity_of_files, resuming
from dovetail_onnx.opening import open_model
from dovetail_onnx.results.cache_key import STAMP, cache_key_of
from dovetail_onnx.results.comparison_file import comparison_text
from dovetail_onnx.results.manifest import ARTIFACTS, COMPARISON, MANIFEST, MODEL, PLAN, REMARKS, Manifest
from dovetail_onnx.results.plan_file import plan_text, remarks_text
from dovetail_onnx.results.provenance import backend_texts, origins_of
from dovetail_onnx.results.reading import FoundResult, SavedFolder, content_digest_of, find_result
from dovetail_onnx.results.writing import Staging, attached_files, copied, staged
from dovetail_onnx.saving import SavedFile, read_content_digest, save_model
from dovetail_onnx.skeleton import skeleton_of

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel


def save_result(
    compiled: CompiledModel,
    folder: Path,
    *,
    external: bool | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Write `compiled` into `folder`; see `CompiledModel.save`."""
    check_folder(folder)
    _keep_source(compiled.source, folder)
    if external is None and _is_there(compiled, folder):
        return
    saved = _origin(compiled)
    with (
        resuming(folder, partial(_identity, compiled)),
        staged(folder) as staging,
        _digest_of(compiled.source) as source,
    ):
        whole = external is None and saved is not None and not compiled.edited and _copied(compiled, saved, staging)
        if not whole:
            _save_model(compiled, staging, external, progress)
        content_digest = read_content_digest(staging.path / MODEL)
        found = saved.found if saved is not None else None
        if whole and found is not None and not found.altered:
            for name, content in found.texts.items():
                staging.write(name, content.decode())
        else:
            if source is not None and compiled.source is not None:
                compiled.plan.model |= {"path": compiled.source.name, "sha256": source.result()}
            compiled.plan.model["result"] = content_digest
            _write_texts(compiled, staging)
        for name, path in attached_files(compiled, saved).items():
            staging.copy(name, path)
        if compiled.artifacts is not None:
            for name, path in compiled.artifacts.files():
                staging.copy(f"{ARTIFACTS}/{name}", path)
            if found is not None:
                # They remain altered: the new manifest lists them with their old digest.
                staging.files |= {name: found.manifest.files[name] for name in _altered_artifacts(found)}
        origins = found.manifest.origins if whole and found is not None else origins_of(compiled)
        staging.commit(Manifest(content_digest, staging.files, compiled.placements(), compiled.coverage(), origins))


def add_comparison(compiled: CompiledModel, folder: Path) -> None:
    """Add the comparison with the original to the result that was saved in `folder` before it was compared."""
    found = None if compiled.verification is None or compiled.edited else find_result(folder)
    if found is None or compiled.verification is None:
        return
    with staged(folder) as staging:
        staging.write(COMPARISON, comparison_text(compiled.verification))
        staging.commit(replace(found.manifest, files={**found.manifest.files, **staging.files}))


def _identity(compiled: CompiledModel) -> dict[str, Any] | None:
    """Return the data that the weights of a new result depend on: its request and its source; None if unknown."""
    key = "" if compiled.edited or compiled.saved is not None else cache_key_of(compiled.model)
    if not key or compiled.source is None:
        return None
    try:
        weights = skeleton_of(open_model(compiled.source)).weights.values()
        data = {Path(path) for tensor in weights if (path := getattr(tensor, "path", None))}
        files = {file.name: file for file in data} | {"": compiled.source}
        return {"request": key, "files": identity_of_files(files)}
    except (DovetailError, OSError):
        return None  # another format, or the source is gone


def check_folder(folder: Path) -> None:
    """Check that a result can be written to a path, before compiling.

    Raises:
        DovetailError: The path is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise DovetailError(f"{folder} is a file", "name a folder to write to")


def _origin(compiled: CompiledModel) -> SavedFolder | None:
    """Return the origin of a result; None for a new one, or one loaded from another store."""
    return compiled.saved if isinstance(compiled.saved, SavedFolder) else None


def _keep_source(source: Path | None, folder: Path) -> None:
    target = folder / MODEL
    if source is not None and target.exists() and source.exists() and target.samefile(source):
        raise DovetailError(
            f"the result would replace its own source {source}", "name another folder, or give the source another name"
        )


def _is_there(compiled: CompiledModel, folder: Path) -> bool:
    """Check whether `folder` already holds this result completely."""
    saved = _origin(compiled)
    if (
        saved is None
        or compiled.edited
        or not (folder / MANIFEST).is_file()
        or saved.file.parent.resolve() != folder.resolve()
    ):
        return False
    with contextlib.suppress(DovetailError):
        found = find_result(folder)
        return (
            found is not None
            and not found.altered
            and found.manifest.content_digest == content_digest_of(compiled.model) != ""
        )
    return False


@contextlib.contextmanager
def _digest_of(source: Path | None) -> Iterator[Future[str] | None]:
    """Compute the digest of the source model while the result is written: a gigabyte takes over half a second."""
    if source is None:
        yield None
        return
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(_digest, source)


def _digest(source: Path) -> str:
    """Return the digest of the source model; empty if it was deleted, which does not affect the result."""
    try:
        return file_sha256(source)
    except OSError:
        return ""


def _save_model(compiled: CompiledModel, staging: Staging, external: bool | None, progress) -> None:
    if compiled.edited:
        # An edited model is not the result of the request.
        compiled.model.ir.metadata_props.pop(STAMP, None)
    staging.add(
        *save_model(compiled.model, staging.path / MODEL, external=external, progress=progress, content_digest=True)
    )
    _add_losses(compiled)


def _copied(compiled: CompiledModel, saved: SavedFolder, staging: Staging) -> bool:
    """Copy the file that the model was opened from; return False if it is missing or replaced."""
    # A graph that was run but not edited is still the content of the file.
    content_digest = (
        saved.found.manifest.content_digest if saved.found is not None else content_digest_of(compiled.model)
    )
    if not content_digest or not saved.file.is_file() or read_content_digest(saved.file) != content_digest:
        return False
    weights = skeleton_of(compiled.model).weights.values()
    data = {Path(path) for tensor in weights if (path := getattr(tensor, "path", None))}
    sources = (*((file, file.name) for file in sorted(data)), (saved.file, MODEL))
    try:
        files = [_copy(file, staging.path / name) for file, name in sources]
    except FileNotFoundError:  # another writer has just replaced the result
        return False
    if read_content_digest(staging.path / MODEL) != content_digest:
        return False
    staging.add(*files)
    return True


def _altered_artifacts(found: FoundResult) -> list[str]:
    return [name for name in found.altered if name.startswith(f"{ARTIFACTS}/")]


def _copy(source: Path, target: Path) -> SavedFile:
    record = copied(source, target)
    return SavedFile(target, record.size, record.sha256)


def _add_losses(compiled: CompiledModel) -> None:
    """Add remarks about precision lost in converting weights, which is known only once they are written."""
    from dovetail_onnx.partial_tensors import losses_of

    known = {(remark.rule, remark.why) for remark in compiled.plan.remarks if remark.rule == "losses"}
    for value in compiled.model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and (losses := losses_of(tensor)):
            why = f"weight '{value.name}' in {tensor.dtype.name.lower()}: {losses}"
            if ("losses", why) not in known:
                compiled.plan.remarks.append(Remark("analysis", "", "convert-weights", "losses", why))


def _write_texts(compiled: CompiledModel, staging: Staging) -> None:
    staging.write(REMARKS, remarks_text(compiled.remarks))
    where = {"file": REMARKS, "sha256": staging.files[REMARKS].sha256}
    staging.write(PLAN, plan_text(compiled.plan, where))
    saved = _origin(compiled)
    texts = saved.found.texts if saved is not None and saved.found is not None else {}
    kept = {name: content.decode() for name, content in texts.items() if name not in (PLAN, REMARKS, COMPARISON)}
    if compiled.verification is not None and not compiled.edited:
        staging.write(COMPARISON, comparison_text(compiled.verification))
    for name, text in {**kept, **backend_texts(compiled), **compiled.files}.items():
        staging.write(name, text)
