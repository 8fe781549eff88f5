"""Files that belong to a plan and lie beside it: its summary names them, each with its digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError

from dovetail_onnx.results.manifest import ATTACHED, plain_name
from dovetail_onnx.results.writing import copied

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel

    from dovetail_onnx.results.reading import SavedFolder


_KEY = "files"


def files_beside(summary: Mapping[str, Any], path: Path) -> dict[str, Path]:
    """The paths of the files that the summary of a plan names, whether they are there or not.

    Args:
        summary: The summary.
        path: The file of the plan.

    Raises:
        DovetailError: What it names is no file in the folder of the plan.
    """
    try:
        return {_attached_name(str(name)): path.parent / str(name) for name in (summary.get(_KEY) or {})}
    except (TypeError, ValueError) as error:
        raise DovetailError(f"{path}: '{_KEY}' in its summary: {error}", "replay a plan as it was saved") from None


def _attached_name(name: str) -> str:
    """`name`, if it is that of arrays beside a plan, and of no other file of a result.

    Raises:
        ValueError: It is something else.
    """
    if "/" in plain_name(name) or not name.endswith(ATTACHED):
        raise ValueError(f"{name!r} is not the name of arrays ({ATTACHED}) beside the plan")
    return name


def attached_files(compiled: CompiledModel, saved: SavedFolder | None) -> Mapping[str, Path]:
    """The files that belong to the plan of a result; of one that was read, those that are as they were saved."""
    found = saved.found if saved is not None else None
    if found is None:
        return compiled.plan.files
    names = [name for name in found.manifest.files if name.endswith(ATTACHED) and name not in found.altered]
    return {name: found.folder / name for name in names}


def copy_beside(files: Mapping[str, Path], path: Path) -> None:
    """Put the files of a plan beside the file that it is saved in, where they are not there yet."""
    for name, source in files.items():
        target = path.parent / name
        if source.is_file() and not (target.exists() and target.samefile(source)):
            copied(source, target)
