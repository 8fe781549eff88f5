"""Folders as Optimum and transformers.js have them: `config.json`, a tokenizer, and models of known names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError

from dovetail_decoder.folder import (
    MODEL_SUFFIX,
    GeneratorFolder,
    Part,
    number_in,
    read_document,
    stops_in,
)
from dovetail_decoder.foreign_files import inside
from dovetail_decoder.merged import is_merged

CONFIG = "config.json"

_FOLDERS = ("", "onnx")
_MERGED, _FIRST, _WITH_PAST = "decoder_model_merged", "decoder_model", "decoder_with_past_model"
_ENCODER, _MODEL = "encoder_model", "model"
_CACHE = "past_key"
_ENCODED = {"encoder_hidden_states": "last_hidden_state"}


def is_optimum_folder(folder: Path) -> bool:
    """Return whether a folder has a decoder beside its `config.json`; a model without caches is none."""
    if not (folder / CONFIG).is_file():
        return False
    found = _stems(folder)
    if found.keys() & {_MERGED, _FIRST, _WITH_PAST}:
        return True
    if _MODEL not in found:
        return False
    try:
        return _has_caches(inside(folder, folder / found[_MODEL]))
    except DovetailError:  # it leads out of the folder, which is an error where it is read
        return True


def read_optimum_folder(folder: Path) -> GeneratorFolder:
    """Read such a folder.

    Raises:
        DovetailError: `config.json` is malformed, or a model that belongs to the others is missing.
    """
    path = folder / CONFIG
    config = read_document(path)
    text = config.get("text_config")
    text = {**config, **text} if isinstance(text, dict) else config
    heads = _first(text, path, "num_key_value_heads", "decoder_attention_heads", "num_attention_heads", "n_head")
    width = _first(text, path, "hidden_size", "d_model", "n_embd")
    attention = _first(text, path, "decoder_attention_heads", "num_attention_heads", "n_head")
    size = _first(text, path, "head_dim", "d_kv") or (width // attention if width and attention else None)
    return GeneratorFolder(
        folder,
        path,
        _parts(folder, bool(config.get("is_encoder_decoder"))),
        _first(text, path, "max_target_positions", "max_position_embeddings", "n_positions"),
        _first(text, path, "vocab_size"),
        stops_in(config, path) or stops_in(text, path),
        number_in(config, "decoder_start_token_id", path, 0) or 0,
        heads,
        size,
        merged=_merged_apart(folder),
    )


def _first(config: Mapping[str, Any], path: Path, *keys: str) -> int | None:
    return next((found for key in keys if (found := number_in(config, key, path)) is not None), None)


def _checked(folder: Path) -> dict[str, Path]:
    """Return the models of the folder that are parts, by their names without suffix.

    Raises:
        DovetailError: One of them leads out of the folder.
    """
    found = _stems(folder)
    names = (_MERGED, _FIRST, _WITH_PAST, _ENCODER, _MODEL)
    return {name: inside(folder, folder / found[name]).relative_to(folder) for name in names if name in found}


def _stems(folder: Path) -> dict[str, Path]:
    """Return the models of the folder by their names without suffix; the first folder that has one counts."""
    found: dict[str, Path] = {}
    for name in _FOLDERS:
        for file in sorted((folder / name).glob(f"*{MODEL_SUFFIX}")):
            found.setdefault(file.stem, Path(name) / file.name)
    return found


def _parts(folder: Path, encodes: bool) -> list[Part]:
    files = _checked(folder)
    parts = []
    if _ENCODER in files:
        parts.append(Part("encoder", files[_ENCODER], "once", outputs=_ENCODED))
    elif encodes:
        raise DovetailError(f"{folder} has decoders, and no {_ENCODER}{MODEL_SUFFIX}", "export the whole model again")
    if _MERGED in files and _merged_apart(folder) is None:
        parts.append(Part("decoder", files[_MERGED]))
        # Nobody reads what is there besides, and it is compiled all the same.
        parts += [Part(name, files[name], "never") for name in (_FIRST, _WITH_PAST) if name in files]
    elif _FIRST in files and _WITH_PAST in files:
        parts += [
            Part("decoder", files[_FIRST], "prompt"),
            Part("decoder_with_past", files[_WITH_PAST], "step"),
        ]
    elif _FIRST in files and _has_caches(folder / files[_FIRST]):
        parts.append(Part("decoder", files[_FIRST]))
    elif _FIRST in files or _WITH_PAST in files:
        missing = _WITH_PAST if _FIRST in files else _FIRST
        raise DovetailError(
            f"{folder} has no {missing}{MODEL_SUFFIX}",
            "export it with caches: optimum-cli export onnx --task ...-with-past",
        )
    else:
        parts.append(Part("decoder", files[_MODEL]))
    return parts


def _merged_apart(folder: Path) -> Path | None:
    """Return the merged decoder, if the two decoders that it is made of are beside it."""
    import onnx

    files = _checked(folder)
    if not {_MERGED, _FIRST, _WITH_PAST} <= files.keys():
        return None
    if len({files[name].parent for name in (_MERGED, _FIRST, _WITH_PAST)}) > 1:
        return None
    try:
        model = onnx.load(folder / files[_MERGED], load_external_data=False)
    except Exception:  # whatever protobuf raises on a damaged file, which is reported when it is compiled
        return None
    return files[_MERGED] if is_merged(model) else None


def _has_caches(file: Path) -> bool:
    """Return whether a model takes caches; one that cannot be read is judged when it is compiled."""
    import onnx

    try:
        graph = onnx.load(file, load_external_data=False).graph
    except Exception:  # whatever protobuf raises on a damaged file
        return False
    return any(_CACHE in value.name for value in graph.input)
