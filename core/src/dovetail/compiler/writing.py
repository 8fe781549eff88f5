"""Writing models to files through registered front ends; core itself knows no file format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.compiler.by_suffix import chosen_for
from dovetail.errors import DovetailError
from dovetail.plugin.frontend import Frontend
from dovetail.plugin.isolation import named_errors

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.plugin.registry import Registry


def write_file(
    model: Model,
    path: Path,
    registry: Registry | None = None,
    *,
    external: bool | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Write a model with the front end for the suffix of its file.

    Args:
        model: The model.
        path: The file.
        registry: The registry with the front ends; by default that of all installed plugins.
        external: Store weights outside the file (True), inside it (False), or as the front end chooses (None).
        progress: Called with ("save", weights written, weights in total).

    Raises:
        DovetailError: Not exactly one front end writes such files, or the file cannot be written.
    """
    from dovetail.plugin.loader import load_plugins

    registry = registry or load_plugins().registry
    found = chosen_for(path, registry.frontend, Frontend, "write").found
    if found is None:
        why = f"{path}: no front end writes such files"
        raise DovetailError(why, "pip install dovetail-onnx, which writes ONNX models")
    with named_errors(found.title):
        found.made.write(model, path, external=external, progress=progress)
