"""Saving of a compiled folder: all models, the configuration that follows the plan, and everything else as it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, system_error
from dovetail.plugin import TemporaryFolder
from dovetail_onnx.files.reading import move_inside
from dovetail_onnx.files.resumable import resuming
from dovetail_onnx.files.writing import created_folders, write_text

from dovetail_decoder.float32_arithmetic import compute_in_float32, has_bfloat16
from dovetail_decoder.folder import MODEL_SUFFIX, GeneratorFolder, Part
from dovetail_decoder.foreign_files import copy_others
from dovetail_decoder.genai_config import CONFIG, clean_document, with_threads, written_config
from dovetail_decoder.manifest import FORMAT, MANIFEST, copy_result, manifest_of, record_of, remove_files
from dovetail_decoder.merged import JOINED, joined
from dovetail_decoder.shared_weights import share_weights, tensors_of

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel

    from dovetail_decoder.caches import Ports

_RESULT = "model.onnx"
"""The file name of a model for which its folder is an ordinary result, too."""

_OF_RESULT = ("plan.yaml", "remarks.json", "result.json")
_DATA = ".data"
Progress = Callable[[str, int, int], None]


def check_output(folder: GeneratorFolder, target: Path) -> None:
    """Reject an output folder before anything is compiled.

    Raises:
        DovetailError: It is a file, the source itself, or the result of another version.
    """
    if target.exists() and not target.is_dir():
        raise DovetailError(f"{target} is a file", "name a folder to write to")
    if target.exists() and target.samefile(folder.path):
        raise DovetailError(f"the result would replace its own source {target}", "name another folder")
    manifest_of(target)


def check_source(folder: Path) -> None:
    """Reject a folder that another version of this program has written.

    Raises:
        DovetailError: Its manifest has another format.
    """
    manifest_of(folder)


def save_folder(
    folder: GeneratorFolder,
    parts: Mapping[str, CompiledModel],
    target: Path,
    providers: Mapping[str, str],
    external: bool | None,
    progress: Progress | None,
) -> list[str]:
    """Write a complete result next to an earlier one, then move it into place; the configuration comes last.

    Args:
        folder: The source.
        parts: The result of each part.
        target: The folder to write to.
        providers: See `written_config`.
        external: Store weights in separate files; by default as the source does.
        progress: See `CompiledModel.save`.

    Returns:
        Notes on files of the source that the result does not get.

    Raises:
        DovetailError: The folder cannot be written.
    """
    check_output(folder, target)
    try:
        with resuming(target), created_folders(target), TemporaryFolder("generator", target) as staging:
            made = staging / "made"
            for part in folder.parts:
                _save_part(folder, part, parts[part.name], staging, made, external, progress)
            # The first one keeps its data: `model.onnx`, which a manifest describes.
            share_weights(made, sorted((part.file for part in folder.parts), key=lambda file: file.name != _RESULT))
            files = {
                part.name: _loadable(made, part, parts[part.name], folder, providers[part.name])
                for part in folder.parts
            }
            if folder.merged is not None:
                _join(folder, folder.merged, made)
            notes = _copy_others(folder, made, target)
            if folder.document is not None:
                document = written_config(folder, files, providers)
                write_text(made / CONFIG, json.dumps(document, indent=4, ensure_ascii=False) + "\n")
            _commit(made, target)
    except OSError as error:
        raise system_error(error, f"{target} cannot be written") from error
    return notes


def save_for_openvino(
    folder: GeneratorFolder,
    ports: Mapping[str, Ports],
    compiled: CompiledModel,
    target: Path,
    progress: Progress | None,
) -> list[str]:
    """Write the folder of a decoder that OpenVINO GenAI loads, as `save_folder` writes that of its source.

    Raises:
        DovetailError: The plan, the tokenizer or the folder is at fault.
    """
    from dovetail.plugin import RegionModel, load_plugins

    from dovetail_decoder.openvino_genai import (
        check_parts,
        check_plan,
        converting_engine,
        write_decoder,
        write_settings,
    )

    check_output(folder, target)
    part = check_parts(folder, ports)
    backend = check_plan(part, compiled)
    engine = converting_engine(compiled, backend, compiled.registry or load_plugins().registry)
    try:
        with resuming(target), created_folders(target), TemporaryFolder("generator", target) as staging:
            made, saved = staging / "made", staging / part.name
            made.mkdir()
            compiled.save(saved, progress=progress)
            write_decoder(folder, ports[part.name], RegionModel(compiled.model, saved / _RESULT), engine, made)
            compiled.plan.save(made / "openvino_model.plan.yaml")
            notes = _copy_others(folder, made, target)
            (made / CONFIG).unlink(missing_ok=True)  # of another program, with a file that is not there
            write_settings(folder, made)
            _commit(made, target)
    except OSError as error:
        raise system_error(error, f"{target} cannot be written") from error
    return notes


def copy_folder(source: GeneratorFolder, result: Path, target: Path, threads: int = 0) -> None:
    """Write a copy of a complete result, which replaces an earlier one as `save_folder` does.

    Args:
        source: The source that both are results of.
        result: The folder of the result.
        target: The folder to write to.
        threads: Threads that the configuration names for every session; 0 leaves them as they are.

    Raises:
        DovetailError: The folder cannot be written.
    """
    check_output(source, target)
    try:
        with created_folders(target), TemporaryFolder("generator", target) as staging:
            made = staging / "made"
            copy_result(result, made)
            if source.document is not None and (made / CONFIG).is_file():
                document = clean_document(made / CONFIG)
                document = with_threads(source, document, threads) if threads else document
                write_text(made / CONFIG, json.dumps(document, indent=4, ensure_ascii=False) + "\n")
            _commit(made, target)
    except OSError as error:
        raise system_error(error, f"{target} cannot be written") from error


def _save_part(
    folder: GeneratorFolder,
    part: Part,
    compiled: CompiledModel,
    staging: Path,
    made: Path,
    external: bool | None,
    progress: Progress | None,
) -> None:
    """Save one part under the name that its source has."""
    saved = staging / part.name
    kept_outside = external if external is not None else _is_external(folder.file_of(part))
    compiled.save(saved, external=True if kept_outside else external, progress=progress)
    place = made / part.file.parent
    place.mkdir(parents=True, exist_ok=True)
    if part.file.name != _RESULT:
        _rename(saved, part.file, compiled)
    for file in sorted(saved.rglob("*")):
        target = place / file.relative_to(saved)
        if file.is_file() and target.exists() and file.suffix != _DATA:
            raise DovetailError(
                f"{part.name}: another part has {file.relative_to(saved)}, too", "compile and save the parts alone"
            )
        if file.is_file():
            _move(file, target)


def _rename(saved: Path, name: Path, compiled: CompiledModel) -> None:
    """Name the files of a result after its model, because its folder will hold several results."""
    for file in list(saved.iterdir()):
        if file.name in _OF_RESULT:
            file.unlink()
        elif file.name == _RESULT:
            file.rename(saved / name.name)
        elif file.is_file() and file.suffix != _DATA:
            file.rename(saved / f"{name.stem}.{file.name}")
    compiled.plan.save(saved / f"{name.stem}.plan.yaml")


def _loadable(made: Path, part: Part, compiled: CompiledModel, folder: GeneratorFolder, provider: str) -> Path:
    """Return the file that ONNX Runtime loads: the model itself, or another one that reads the same weights."""
    import onnx

    model = made / part.file
    proto = onnx.load(model, load_external_data=False)
    if provider or not has_bfloat16(proto):
        return part.file
    compute_in_float32(proto)
    del proto.metadata_props[:]
    if folder.document is None:
        # These folders have no configuration: programs find models by their names.
        plain, model = model, model.with_name(f"{model.stem}.bfloat16{MODEL_SUFFIX}")
        plain.rename(model)
        for name in _OF_RESULT if plain.name == _RESULT else (f"{plain.stem}.plan.yaml",):
            (plain.parent / name).unlink(missing_ok=True)
        compiled.plan.save(plain.parent / f"{model.stem}.plan.yaml")
    else:
        plain = model.with_name(f"{model.stem}.float32{MODEL_SUFFIX}")
    onnx.save(proto, plain)
    return plain.relative_to(made)


def _join(folder: GeneratorFolder, merged: Path, made: Path) -> None:
    """Write the merged decoder of the two that are compiled; it reads their weights."""
    import onnx

    source = onnx.load(folder.path / merged, load_external_data=False)
    first, step = (
        onnx.load(made / next(part.file for part in folder.parts if part.name == name), load_external_data=False)
        for name in JOINED
    )
    onnx.save(joined(source, first, step), made / merged)
    for part in folder.parts:
        if part.made is not None:  # the source has no such file; its weights are those of the merged one
            (made / part.file).unlink()


def _is_external(file: Path) -> bool:
    """Return whether a source model keeps weights in separate files."""
    return bool(data_of(file))


def left_out(folder: GeneratorFolder) -> list[str]:
    """Return notes on what of a folder its results do not get."""
    return [*folder.notes, *_copy_others(folder, None, None)]


def _copy_others(folder: GeneratorFolder, made: Path | None, output: Path | None) -> list[str]:
    """Copy the files that belong to no model, such as the tokenizer; return notes on those that are left out."""
    sources = [folder.file_of(part) for part in folder.parts]
    sources += [] if folder.merged is None else [folder.path / folder.merged]
    known = {file.resolve() for model in sources for file in (model, *data_of(model))}
    written = manifest_of(folder.path).get("files", {})
    target = output.resolve() if output is not None else None

    def belongs(inner: Path) -> bool:
        file = (folder.path / inner).resolve()
        ours = inner.as_posix() in written or target in file.parents
        of_plan = folder.document is not None and inner == Path(CONFIG)
        return not ours and not of_plan and file not in known

    return copy_others(folder.path, made, belongs)


def data_of(model: Path) -> set[Path]:
    """Return the files with the weights of a model."""
    import onnx

    if model.suffix != MODEL_SUFFIX:  # of OpenVINO
        return {model.with_suffix(".bin")}

    graph = onnx.load(model, load_external_data=False).graph
    names = {entry.value for tensor in tensors_of(graph) for entry in tensor.external_data if entry.key == "location"}
    return {model.parent / name for name in names}


def _commit(made: Path, target: Path) -> None:
    """Move a complete result into its folder: data first, then models, and what names them last."""
    old = manifest_of(target).get("files", {})
    files = sorted((file for file in made.rglob("*") if file.is_file()), key=_turn)
    names = {file.relative_to(made).as_posix(): record_of(file) for file in files}
    for name in names:
        if (target / name).is_dir():
            raise DovetailError(f"{target / name} is a folder", "remove it, or name another folder to write to")
    write_text(made / MANIFEST, json.dumps({"format": FORMAT, "files": names}, indent=1) + "\n")
    for name in (*names, MANIFEST):
        move_inside(made, target, name)
    remove_files(target, {name: record for name, record in old.items() if name not in names})


def _turn(file: Path) -> tuple[int, str]:
    order = (file.suffix == _DATA, file.suffix == MODEL_SUFFIX, file.name != CONFIG)
    return order.index(True) if True in order else len(order), str(file)


def _move(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(file, target)


def size_of(folder: GeneratorFolder) -> int:
    """Return the bytes of a folder's models with their weights; what several models share counts once."""
    models = [folder.file_of(part) for part in folder.parts]
    return sum(file.stat().st_size for file in {*models, *(data for model in models for data in data_of(model))})
