"""What of a result a product ships: models, configuration, tokenizer, licenses; nothing about the compilation."""

from __future__ import annotations

import re
from pathlib import Path

from dovetail.plugin import ShippedFolder

from dovetail_decoder.folder import MODEL_SUFFIX
from dovetail_decoder.genai_config import CONFIG
from dovetail_decoder.manifest import checked_files
from dovetail_decoder.openvino_genai import MODEL
from dovetail_decoder.runtime_defaults import ONNXRUNTIME_GENAI
from dovetail_decoder.runtime_option import OPENVINO_GENAI
from dovetail_decoder.saving import data_of

_PLAN = re.compile(r"(?:(.*)\.)?plan\.yaml")
_OF_RESULT = re.compile(
    r"(?:.*\.)?(?:plan\.yaml|result\.json|remarks\.json|verification\.json|report\.html)|dovetail\.json"
)
_ARTIFACTS = "artifacts"
_BFLOAT16, _FLOAT32 = ".bfloat16", ".float32"
"""Ends of names of models: as Dovetail computes a part, and as ONNX Runtime computes it without bfloat16."""
_RESULT = "model"
"""The name of the model whose plan has no name."""


def shipped_files(result: Path) -> ShippedFolder | None:
    """Return what of a result a product ships; None if the folder is no result of a language model.

    Raises:
        DovetailError: A file of the result is missing, or was changed since it was saved.
    """
    names = list(map(Path, checked_files(result)))
    if not names:
        return None
    models = {name for name in names if name.suffix == MODEL_SUFFIX}
    own = {model for model in models if _is_replaced(model, models, Path(CONFIG) in names)}
    parts = {
        model.stem.removesuffix(_BFLOAT16): model
        for name in names
        if (found := _PLAN.fullmatch(name.name))
        and (model := name.with_name(f"{found[1] or _RESULT}{MODEL_SUFFIX}")) in models
    }
    read = {data.relative_to(result) for model in models - own for data in data_of(result / model)}
    unread = {data.relative_to(result) for model in own for data in data_of(result / model)} - read
    files = [
        name
        for name in names
        if name not in own | unread and name.parts[0] != _ARTIFACTS and not _OF_RESULT.fullmatch(name.name)
    ]
    return ShippedFolder(_runtime_of(files), files, parts)


def _is_replaced(model: Path, models: set[Path], is_configured: bool) -> bool:
    """Check whether programs load another file in place of a model, which computes it without bfloat16."""
    if is_configured:
        return model.with_name(f"{model.stem}{_FLOAT32}{MODEL_SUFFIX}") in models
    return model.stem.endswith(_BFLOAT16)


def _runtime_of(files: list[Path]) -> str:
    if Path(CONFIG) in files:
        return ONNXRUNTIME_GENAI
    return OPENVINO_GENAI if Path(MODEL) in files else "onnxruntime"
