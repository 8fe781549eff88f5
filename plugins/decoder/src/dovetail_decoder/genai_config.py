"""`genai_config.json`, the configuration that onnxruntime-genai reads: the models, and the roles of their inputs.

Every mapping below `model` with a `filename` that ends in `.onnx` is a part, so that parts of newer versions are found,
too. What is not known here stays as it is, but for options of sessions and what names code (`clean_config`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from dovetail.errors import DovetailError
from dovetail.text import printable

from dovetail_decoder.clean_config import OPTIONS, cleaned
from dovetail_decoder.folder import (
    MODEL_SUFFIX,
    GeneratorFolder,
    Part,
    Phase,
    file_in,
    number_in,
    path_in,
    read_document,
    stops_in,
)
from dovetail_decoder.foreign_files import inside

CONFIG = "genai_config.json"

_PHASES: Mapping[str, Phase] = {
    "encoder": "once", "vision": "once", "speech": "once", "embedding": "always", "decoder": "always",
}  # fmt: skip
_ORDER = ("encoder", "vision", "speech", "embedding", "decoder")
_PATHS = ("_file", "_dir")
"""Ends of keys that name other files and folders: `tokenizer_dir`, `data_file`."""
_AGAIN = "build the folder again: python -m onnxruntime_genai.models.builder"

PROVIDERS = {
    "onnxruntime-cpu": "",
    "onnxruntime-cuda": "cuda",
    "onnxruntime-webgpu": "WebGPU",
    "onnxruntime-dml": "DML",
    "tensorrt": "NvTensorRtRtx",
}
"""What onnxruntime-genai calls the provider of an engine; the CPU has no entry in a configuration."""


def read_genai_folder(folder: Path) -> GeneratorFolder:
    """Read a folder with a `genai_config.json`.

    Raises:
        DovetailError: The configuration is malformed, or names a file that is not there.
    """
    path = folder / CONFIG
    document = read_document(path)
    model = document.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("decoder"), dict):
        raise DovetailError(f"{path} has no 'model' with a 'decoder'", _AGAIN)
    _check_files(folder, model, path)
    found = cleaned(document)
    document, model = found.document, found.document["model"]
    parts = sorted(_parts(folder, model, path), key=lambda part: _rank(str(part.place[1])))
    if not any(part.place[:2] == ("model", "decoder") for part in parts):
        raise DovetailError(f"{path}: 'decoder' has neither a 'filename' nor a 'pipeline'", _AGAIN)
    decoder = model["decoder"]
    return GeneratorFolder(
        folder,
        path,
        parts,
        number_in(model, "context_length", path),
        number_in(model, "vocab_size", path),
        stops_in(model, path),
        number_in(model, "decoder_start_token_id", path, 0) or 0,
        number_in(decoder, "num_key_value_heads", path),
        number_in(decoder, "head_size", path),
        document,
        notes=[note] if (note := found.note(path.name)) else [],
    )


def clean_document(path: Path) -> dict[str, Any]:
    """Read the configuration of a result without what an engine must not get from a folder.

    Raises:
        DovetailError: It cannot be read.
    """
    return cast("dict[str, Any]", cleaned(read_document(path)).document)


def written_config(folder: GeneratorFolder, files: Mapping[str, Path], providers: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration of a result: its file names and providers follow the plan, all else stays.

    Args:
        folder: The source folder.
        files: The file of each part in the result, by the part's name.
        providers: What onnxruntime-genai calls the provider of each part; empty for the CPU.
    """
    document = copy.deepcopy(dict(folder.document or {}))
    for part in folder.parts:
        entry: Any = document
        for key in part.place:
            entry = entry[key]
        entry["filename"] = files[part.name].as_posix()
        options = entry.get("session_options")
        wanted = providers[part.name]
        if not isinstance(options, dict):
            if not wanted:
                continue
            options = entry["session_options"] = {}
        given = options.get("provider_options")
        kept = [one for one in given if _names(one, wanted)] if isinstance(given, list) else []
        options["provider_options"] = kept or ([{wanted: {}}] if wanted else [])
    return document


def with_threads(folder: GeneratorFolder, document: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Return the configuration of a result with the threads that every part of it runs on."""
    changed = copy.deepcopy(dict(document))
    for part in folder.parts:
        entry: Any = changed
        for key in part.place:
            entry = entry[key]
        if not isinstance(entry.get("session_options"), dict):
            entry["session_options"] = {}
        entry["session_options"]["intra_op_num_threads"] = threads
    return changed


def _names(entry: object, provider: str) -> bool:
    """Check whether an entry of `provider_options` is that of a provider; its settings are kept."""
    return isinstance(entry, dict) and bool(provider) and any(key.lower() == provider.lower() for key in entry)


def _rank(section: str) -> int:
    return _ORDER.index(section) if section in _ORDER else -1


def _parts(folder: Path, model: Mapping[str, Any], path: Path) -> Iterator[Part]:
    for section, entry in model.items():
        phase = _PHASES.get(section, "never")
        if isinstance(entry, dict):
            yield from _section(folder, section, entry, phase, path)


def _section(folder: Path, name: str, entry: Mapping[str, Any], phase: Phase, path: Path) -> Iterator[Part]:
    place = ("model", name)
    if _is_model(entry):
        yield _part(folder, name, entry, phase, place, path)
    pipeline = entry.get("pipeline")
    if pipeline is not None:
        if not isinstance(pipeline, list) or not all(isinstance(stage, dict) for stage in pipeline):
            raise DovetailError(f"{path}: '{name}.pipeline' is no list of stages", _AGAIN)
        for number, stage in enumerate(pipeline):
            for key, value in stage.items():
                if isinstance(value, dict) and _is_model(value):
                    when = _phase_of_stage(value, phase)
                    yield _part(folder, f"{name}.{key}", value, when, (*place, "pipeline", number, key), path, entry)
    for key, value in entry.items():
        if isinstance(value, dict) and _is_model(value):
            yield _part(folder, f"{name}.{key}", value, "never", (*place, key), path)


def _is_model(entry: Mapping[str, Any]) -> bool:
    name = entry.get("filename")
    return isinstance(name, str) and name.endswith(MODEL_SUFFIX)


def _phase_of_stage(stage: Mapping[str, Any], phase: Phase) -> Phase:
    if phase != "always":
        return phase
    prompt, step = stage.get("run_on_prompt", True), stage.get("run_on_token_gen", True)
    return "always" if prompt and step else "prompt" if prompt else "step" if step else "never"


def _part(
    folder: Path,
    name: str,
    entry: Mapping[str, Any],
    phase: Phase,
    place: tuple[str | int, ...],
    path: Path,
    around: Mapping[str, Any] | None = None,
) -> Part:
    """Return one part; the stages of a pipeline share the names of the entry `around` them."""
    file = file_in(folder, entry.get("filename"), f"{path}: '{'.'.join(map(str, place))}.filename'")
    names = around or entry
    return Part(name, file, phase, _named(names, "inputs", path), _named(names, "outputs", path), place)


def _named(entry: Mapping[str, Any], key: str, path: Path) -> dict[str, str]:
    given = entry.get(key, {})
    if isinstance(given, list):  # of a stage: names alone
        return {}
    if not isinstance(given, dict):
        raise DovetailError(f"{path}: '{key}' is {printable(repr(given))} and no mapping", _AGAIN)
    return {role: name for role, name in given.items() if isinstance(name, str) and name}


def _check_files(folder: Path, entry: Mapping[str, Any], path: Path, where: str = "model") -> None:
    """Check that every file that is named anywhere in the configuration is there, and that nothing leads out."""
    for key, value in entry.items():
        if key.lower() in OPTIONS:
            continue  # cleaned, and no file of the model
        inner = value if isinstance(value, list) else [value]
        for one in inner:
            if isinstance(one, dict):
                _check_files(folder, one, path, f"{where}.{key}")
        if key.endswith("filename") and isinstance(value, str) and value:
            file_in(folder, value, f"{path}: '{where}.{key}'")
        elif key.endswith(_PATHS) and isinstance(value, str) and value:
            inside(folder, folder / path_in(value, f"{path}: '{where}.{key}'"))
